#!/bin/bash
# Trains on a machine with a GPU: teachers side by side, then students side by side; the best come back.
#     on_device.sh FOLDER RUN.json OUT        RUN: {"teachers": 2, "epochs": 4, "students": {"name": {…}}, "best": 4}
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 run=$2 out=$3
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2
work=$(mktemp -d -p /dev/shm)
cp "$folder"/*.npz "$folder"/tokens.xz "$work"/
value() { python3 -c "import json,sys; print(json.load(open('$run')).get('$1', '$2'))"; }
began=$SECONDS
for seed in $(seq 1 "$(value teachers 2)"); do
  python3 "$here/train.py" "$work" --teach "$seed" --epochs "$(value epochs 4)" --seconds "$(value seconds 1000000)" > "$work/teacher-$seed.log" 2>&1 &
done
wait
tail -qn 3 "$work"/teacher-*.log
echo "teachers: $((SECONDS - began)) s"
mkdir -p "$work/out"
python3 - "$run" <<'P' > "$work/students"
import json, sys
for name, options in json.load(open(sys.argv[1]))["students"].items():
    print(name + "\t" + json.dumps(options))
P
while IFS=$'\t' read -r name options; do
  python3 "$here/train.py" "$work" --student "$name" "$options" --out "$work/out" > "$work/$name.log" 2>&1 &
done < "$work/students"
wait
tail -qn 2 "$work"/out/../*.log | grep -v teacher
echo "students: $((SECONDS - began)) s"
python3 - "$work" "$out" "$(value best 4)" <<'P'
import json, shutil, sys
from pathlib import Path
work, out = Path(sys.argv[1]), Path(sys.argv[2])
results = {path.stem: json.loads(path.read_text()) for path in (work / "out").glob("*.json")}
results |= {path.stem: json.loads(path.read_text()) for path in work.glob("teacher-*.json")}
students = sorted((name for name in results if not name.startswith("teacher")), key=lambda name: -results[name]["mean recall"])
for name in students[: int(sys.argv[3])]:
    shutil.copy(work / "out" / f"{name}.npz", out / f"{name}.npz")
    (work / "out" / f"best-{name}").touch()
(out / "results.json").write_text(json.dumps(results))
print({name: result["mean recall"] for name, result in results.items()})
P
# The threshold is fixed on what was held out, and only then the public sets are scored.
for path in "$work"/out/best-*; do
  name=${path##*/best-}
  (python3 "$here/export.py" "$work/out/$name.npz" "$folder/held.jsonl.gz" --fast --options "$work/out/$name.json" \
    --out "$work/out/$name.safetensors" --threshold "$work/out/$name-threshold.json" > "$work/out/$name-export.log" 2>&1
  python3 "$here/evaluate.py" "$work/out/$name.safetensors" --fast --others "$work/out/$name-threshold.json" --json "$work/out/$name-totals.json" > "$work/out/$name-eval.log" 2>&1) &
done
wait
echo "scored: $((SECONDS - began)) s"
cat "$work"/out/*-export.log "$work"/out/*-eval.log
for path in "$work"/out/best-*; do
  name=${path##*/best-}
  grep -E "threshold|^[a-z].* (recall|false positives)( at 0.01)? |jbb_.*[a-zA-Z]  |over 2" "$work/out/$name-eval.log" || tail -n 5 "$work/out/$name-export.log" "$work/out/$name-eval.log"
done
python3 - "$work/out" "$out" <<'P'
import json, sys
from pathlib import Path
found = {p.stem: json.loads(p.read_text()) for pattern in ("*-totals.json", "*-threshold.json") for p in Path(sys.argv[1]).glob(pattern)}
(Path(sys.argv[2]) / "scores.json").write_text(json.dumps(found))
P
