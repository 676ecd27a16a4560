#!/bin/bash
# Trains on a machine with a GPU, in stages that can be run one by one. WORK is what pack.py wrote.
#     on_device.sh WORK RUN.json OUT teachers encoder students
# teachers  RUN's number of teachers, side by side; what they say of all windows stays in WORK
# encoder   the second look, by all teachers; encoder.npz and what it says stay in WORK
# students  RUN's students, by the encoder. The one that finds most of what was held out together with it goes to OUT, for export.py
# RUN is {"teachers": 2, "epochs": 3, "encoder_steps": 8000, "spliced": 0.5, "steps": 9000, "students": {"name": {…options}}}. With
# "seconds" the students stop after that time with an error, and go on when the stage is run again.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$1 run=$2 out=$3
shift 3
mkdir -p "$out"
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4
value() { python3 -c "import json; print(json.load(open('$run'))['$1'])"; }

train_teachers() {
  local all=() failed=0
  rm -f "$work"/said-teacher-*.npz
  for seed in $(seq 1 "$(value teachers)"); do
    python3 "$here/encoder.py" "$work" --teach "$seed" --epochs "$(value epochs)" > "$work/teacher-$seed.log" 2>&1 &
    all+=($!)
  done
  for one in "${all[@]}"; do wait "$one" || failed=1; done
  tail -qn 1 "$work"/teacher-*.log
  return $failed
}

train_encoder() {
  python3 "$here/encoder.py" "$work" --distil --steps "$(value encoder_steps)" && cp "$work"/encoder.json "$work"/encoder.npz "$work"/teacher-*.json "$out/"
}

train_students() {
  mkdir -p "$work/students"
  python3 "$here/train.py" "$work" --students "$run" --out "$work/students" > "$work/students/log" 2>&1
  local said=$?
  tail -n 12 "$work/students/log"
  [ $said = 0 ] || return $said
  python3 "$here/fast.py" "$work" "$work/students" --run "$run" --out "$out"
}

for stage in "$@"; do
  began=$SECONDS
  case $stage in
    teachers) train_teachers ;;
    encoder) train_encoder ;;
    students) train_students ;;
    *) echo "no such stage: $stage" && false ;;
  esac || exit 1
  echo "$stage: $((SECONDS - began)) s"
done
