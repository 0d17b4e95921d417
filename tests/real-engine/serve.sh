#!/usr/bin/env bash
# Serves a model directory with the vLLM that setup.sh installed.  usage: serve.sh MODEL_DIR [vllm arguments]
# Environment: DIR (setup.sh's), PORT (28000), KV_PORT (25557), REPLAY_PORT (25657), BLOCK (32: vLLM on CPU takes
# multiples of 32), NAME (the served model's name: the directory's).
set -eu
dir=${DIR:-$HOME/.cache/sightline-real-engine}
model=$1
shift
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 \
    DO_NOT_TRACK=1 VLLM_HOST_IP=127.0.0.1 OMP_NUM_THREADS=2 PATH="$dir/venv/bin:$PATH"
events="{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:${KV_PORT:-25557}\",\
\"replay_endpoint\":\"tcp://127.0.0.1:${REPLAY_PORT:-25657}\",\"topic\":\"kv-events\"}"
exec vllm serve "$model" --served-model-name "${NAME:-$(basename "$model")}" --host 127.0.0.1 --port "${PORT:-28000}" \
    --max-model-len 32768 --block-size "${BLOCK:-32}" --enable-prefix-caching --enforce-eager --dtype bfloat16 \
    --skip-mm-profiling --max-num-seqs 8 --enable-prompt-tokens-details --limit-mm-per-prompt '{"image":8}' \
    --kv-events-config "$events" "$@"
