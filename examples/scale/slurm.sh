#!/bin/bash
# One fit and one scoring by an array of Slurm tasks; all see the same files.
#
#   sbatch --array=1-16 examples/scale/slurm.sh collect
#   sbatch --dependency=afterok:JOB examples/scale/slurm.sh fit
#   sbatch --dependency=afterok:JOB --array=1-16 examples/scale/slurm.sh score
#   sbatch --dependency=afterok:JOB examples/scale/slurm.sh merge
#
# A task that died is begun again by itself: sbatch --array=3 ... A scoring goes on where it was.
#SBATCH --cpus-per-task=4
#SBATCH --requeue
set -euo pipefail
MODEL=${MODEL:?a network, such as timm:resnet50}
TRAIN=${TRAIN:-train} VAL=${VAL:-val} INBOX=${INBOX:-inbox} OUT=${OUT:-out} SHARDS=${SHARDS:-16}
mkdir -p "$OUT"
case $1 in
  collect)
    oodshape collect --model "$MODEL" --images "$TRAIN" --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" \
      --out "$OUT/part-$SLURM_ARRAY_TASK_ID.safetensors" ;;
  fit)
    oodshape fit --model "$MODEL" --parts "$OUT/part-*.safetensors" --calibrate "$VAL" --out "$OUT/guard.safetensors" ;;
  score) # the exit status is 3 where an image could not be read: it is a row with an error
    oodshape score --model "$MODEL" --guard "$OUT/guard.safetensors" --images "$INBOX" \
      --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --out "$OUT/scores-$SLURM_ARRAY_TASK_ID.parquet" || [ $? -eq 3 ] ;;
  merge)
    oodshape merge "$OUT"/scores-*.parquet --out "$OUT/scores.parquet" ;;
esac
