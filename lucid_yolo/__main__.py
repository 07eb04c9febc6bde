"""``python -m lucid_yolo``: the console command."""

import sys

from lucid_yolo.cli import main

sys.exit(main())
