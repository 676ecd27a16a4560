#!/bin/bash
# Trains on a machine with a GPU, in stages that can be run one by one. WORK is what pack.py wrote, PORTCULLIS_DATA has the public sets.
#     on_device.sh WORK RUN.json OUT teachers students
# teachers  RUN's number of teachers, side by side; their weights stay in WORK
# students  RUN's students, by the opinions of all teachers. The best by what was held out gets its threshold, and only then, and only it, is scored
#           on the public sets. It goes to OUT with all results
# RUN is {"teachers": 3, "epochs": 4, "spliced": 0.5, "steps": 12000, "students": {"name": {…options}}}. With "seconds" the students stop
# after that time with an error, and go on when the stage is run again.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$1 run=$2 out=$3
shift 3
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2
value() { python3 -c "import json; print(json.load(open('$run'))['$1'])"; }

train_teachers() {
  for seed in $(seq 1 "$(value teachers)"); do
    python3 "$here/train.py" "$work" --teach "$seed" --epochs "$(value epochs)" > "$work/teacher-$seed.log" 2>&1 &
  done
  wait
  tail -qn 3 "$work"/teacher-*.log | cut -c1-2000
}

train_students() {
  mkdir -p "$work/students"
  python3 "$here/train.py" "$work" --students "$run" --out "$work/students" > "$work/students/log" 2>&1
  local said=$?
  tail -n 12 "$work/students/log"
  [ $said = 0 ] || return $said
  best=$(python3 - "$work" "$out" <<'P'
import json, sys
from pathlib import Path
work, out = Path(sys.argv[1]), Path(sys.argv[2])
results = {path.stem: json.loads(path.read_text()) for path in [*(work / "students").glob("*.json"), *work.glob("teacher-*.json")]}
(out / "results.json").write_text(json.dumps(results))
print(max((name for name in results if not name.startswith("teacher-")), key=lambda name: results[name]["mean recall"]))
P
)
  echo "chosen: $best"
  cp "$work/students/$best.npz" "$work/students/$best.json" "$work/held.jsonl.gz" "$out/"
  python3 "$here/export.py" "$out/$best.npz" "$work/held.jsonl.gz" --fast --options "$out/$best.json" \
    --out "$out/$best.safetensors" --threshold "$out/threshold.json"
  python3 "$here/evaluate.py" "$out/$best.safetensors" --fast --others "$out/threshold.json" --json "$out/totals.json"
}

for stage in "$@"; do
  began=$SECONDS
  case $stage in
    teachers) train_teachers ;;
    students) train_students ;;
    *) echo "no such stage: $stage" && false ;;
  esac || exit 1
  echo "$stage: $((SECONDS - began)) s"
done
