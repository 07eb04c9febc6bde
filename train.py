"""Train from a checkout: ``python train.py key=value ...``, the same as ``lucid-yolo train key=value ...``.

Tab completion looks for the text @hydra.main in this file; the command line lives in lucid_yolo/cli.py.
"""

import sys

from lucid_yolo.cli import main

if __name__ == "__main__":
    sys.exit(main(default_verb="train"))
