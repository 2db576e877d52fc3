#!/bin/sh
# A public classifier on real photographs: predict, certify with early stopping, report.
# Options of certify may follow: sh run.sh --subset ::10
set -eu
cd "$(dirname "$0")"
python photographs.py photographs
varsmooth predict "photographs/243 bull mastiff" --model networks:plain --sigma 0.12 --n 100
for model in plain denoised; do
    for sigma in 0.12 0.25; do
        varsmooth certify --model networks:$model --sigma $sigma --data photographs \
            --until 0.2 --n0 10 --n-max "${N_MAX:-200}" --batch-size 50 --out runs/$model-$sigma "$@"
    done
done
varsmooth report runs/plain-0.12 runs/plain-0.25 runs/denoised-0.12 runs/denoised-0.25 --out report
