"""Data loader and trainer in one process: `penstock run together.py day.tsv`, or with nothing but the file's name."""

import os
import sys
import threading

from data_compose import send

from train import train

if __name__ == "__main__":
    source = sys.argv[1] if len(sys.argv) > 1 else os.environ["TRAIN_DATA"]
    threading.Thread(target=send, args=(source,), daemon=True).start()
    train()
