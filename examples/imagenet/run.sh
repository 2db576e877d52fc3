#!/bin/sh
# A public classifier on real photographs, alone and behind a denoiser: predict, certify at four noise
# levels and as a cascade over them, report. The same command continues an interrupted one.
# Options of certify may follow: sh run.sh --precision bfloat16
set -eu
cd "$(dirname "$0")"
certify() {
    varsmooth certify --data photographs --at 0,0.06,0.12,0.25,0.5 --n0 10 --n-max "${N_MAX:-64}" \
        --batch-size 32 --vote-cache votes "$@"
}
python photographs.py photographs
varsmooth predict "photographs/243 bull mastiff" --model networks:plain --sigma 0.12 --n 100
for model in plain denoised; do
    for sigma in 0.06 0.12 0.25 0.5; do
        certify --model networks:$model --sigma $sigma --out runs/$model-$sigma "$@"
    done
    certify --model networks:$model --cascade 0.5:0.9,0.25:0.8,0.12:0.7,0.06 --out runs/$model-cascade "$@"
done
varsmooth report runs/plain-* runs/denoised-* --out report
