#!/bin/bash
# All of it on one machine with a GPU and many cores: build, check, pack, train, score.
#     whole_run.sh RUN.json OUT     beside it: data/train.jsonl.xz, data/public_eval/, wheels/, teacher.npz (from pack.py)
set -u
here=$(cd "$(dirname "$0")" && pwd)
run=$1 out=$2
export PORTCULLIS_DATA=/dev/shm/data PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
mkdir -p "$PORTCULLIS_DATA" /dev/shm/pack
cp -r "$here/data/public_eval" "$PORTCULLIS_DATA/"
if [ -f "$here/data/set.jsonl.xz" ]; then
  python3 -c "import gzip,lzma,shutil,sys; shutil.copyfileobj(lzma.open(sys.argv[1]), gzip.open(sys.argv[2], 'wb', 1))" "$here/data/set.jsonl.xz" /dev/shm/set.jsonl.gz
else
  python3 -c "import gzip,lzma,shutil,sys; shutil.copyfileobj(lzma.open(sys.argv[1]), gzip.open(sys.argv[2], 'wb', 1))" "$here/data/train.jsonl.xz" "$PORTCULLIS_DATA/train.jsonl.gz"
  python3 "$here/build.py" --wheels "$here/wheels" --out /dev/shm/set.jsonl.gz --jobs 16 || exit 1
fi
# Nothing is trained on a set that overlaps with an evaluation set.
python3 "$here/overlap.py" /dev/shm/set.jsonl.gz --jobs 16 || exit 1
python3 "$here/pack.py" /dev/shm/set.jsonl.gz --out /dev/shm/pack --jobs 16 || exit 1
cp "$here/teacher.npz" /dev/shm/pack/
python3 -c "
import gzip
with gzip.open('/dev/shm/set.jsonl.gz', 'rt') as rows, gzip.open('/dev/shm/pack/held.jsonl.gz', 'wt', 1) as held:
    held.writelines(row for row in rows if '\"split\": \"dev\"' in row)"
cp /dev/shm/pack/held.jsonl.gz "$out/"
sha256sum /dev/shm/set.jsonl.gz
echo "packed: $SECONDS s"
# Beside the training: the set to take home.
(nice -n 10 python3 -c "import gzip,lzma,shutil; shutil.copyfileobj(gzip.open('/dev/shm/set.jsonl.gz'), lzma.open('$out/set.jsonl.xz', 'wb', preset=6))") &
bash "$here/on_device.sh" /dev/shm/pack "$run" "$out"
echo "all: $SECONDS s"
