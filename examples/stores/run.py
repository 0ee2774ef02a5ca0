"""All of it at once: draws pictures, uploads them, trains on them, with one process and with two ranks.

python examples/stores/run.py                                 # a folder in place of a server
python examples/stores/run.py http://127.0.0.1:8333           # keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from pictures import draw

if __name__ == "__main__":
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        pictures = Path(folder, "pictures")
        draw(pictures, count=100)
        url = sys.argv[1] if len(sys.argv) > 1 else str(Path(folder, "shards"))
        for script, words in (("upload.py", [str(pictures), url]), ("train.py", [url]), ("train_ddp.py", [url])):
            print(f"-- {script}", flush=True)
            subprocess.run([sys.executable, str(here / script), *words], check=True)
