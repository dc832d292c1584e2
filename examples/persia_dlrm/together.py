"""Data loader and trainer in one process, with PERSIA_EMBEDDING_CONFIG set: penstock run together.py DAY.tsv"""

import os
import sys
import threading

from data_compose import send

from train import train

if __name__ == "__main__":
    source = sys.argv[1] if len(sys.argv) > 1 else os.environ["TRAIN_DATA"]
    os.environ.setdefault("TRAINER_PORT", "8000")  # what the launcher sets; nobody connects to it here
    os.environ.setdefault("FORWARD_QUEUE_SIZE", "10")
    threading.Thread(target=send, args=(source,), daemon=True).start()
    train()
