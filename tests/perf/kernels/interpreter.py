"""Triton's interpreter: import this before any kernel.

Triton reads TRITON_INTERPRET when it is imported, so the programs that use it are processes of their own.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
