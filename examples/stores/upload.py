"""Writes a folder of pictures as shards into a bucket.

    python examples/stores/upload.py PICTURES /tmp/shards                    # a folder in place of a server
    python examples/stores/upload.py PICTURES http://127.0.0.1:8333          # keys: see below

Keys are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. It may be killed and called again: it goes on.
"""

import os
import sys
from pathlib import Path

from pictures import ImageFolder

from swift_loader.shards import make_client, upload_cv_dataset

if __name__ == "__main__":
    source, URL = sys.argv[1:3]
    ACCESS_KEY, SECRET_KEY = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    client = make_client(URL, ACCESS_KEY, SECRET_KEY)

    bucket = "testbucket"
    folder = "pictures-val"
    ds = ImageFolder(Path(source))
    made = upload_cv_dataset(
        ds, client=client, bucket=bucket, base_folder=folder, maxsize=1e6, maxcount=100000, workers=2
    )
    print(f"{made.samples} pictures in {made.shards} shards: {made.where}")
