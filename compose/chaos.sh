#!/bin/sh
# Breaks one part of a running cluster after the other, and heals it: kills, pauses and cuts, drawn from CHAOS_SEED.
# Usage: chaos.sh PROJECT. Runs on the host as well as in the profile `chaos`.
set -eu
project=${1:-sightline}
seed=${CHAOS_SEED:-1}
rounds=${CHAOS_ROUNDS:-0} # 0 for no end
fault=${CHAOS_FAULT_SECONDS:-5}
pause=${CHAOS_PAUSE_SECONDS:-20}
parts="nats etcd frontend0 frontend1 indexer agent0 agent1 agent2 agent3 engine0 engine1 engine2 engine3"

draw() { # draw BOUND: a number below it
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}

container() {
    docker ps --all --quiet --filter "label=com.docker.compose.project=$project" \
        --filter "label=com.docker.compose.service=$1"
}

networks() {
    docker inspect --format '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}' "$1"
}

round=0
while [ "$rounds" -eq 0 ] || [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    draw 13
    part=$(echo "$parts" | cut -d ' ' -f $((drawn + 1)))
    draw 3
    id=$(container "$part")
    [ -n "$id" ] || { echo "chaos: $part does not run"; exit 1; }
    case $drawn in
    0)
        echo "chaos: round $round kills $part"
        docker kill --signal KILL "$id" >/dev/null
        sleep "$fault"
        docker start "$id" >/dev/null
        ;;
    1)
        echo "chaos: round $round pauses $part"
        docker pause "$id" >/dev/null
        sleep "$fault"
        docker unpause "$id" >/dev/null
        ;;
    2)
        echo "chaos: round $round cuts $part off"
        network=$(networks "$id" | cut -d ' ' -f 1)
        docker network disconnect "$network" "$id"
        sleep "$fault"
        docker network connect --alias "$part" "$network" "$id"
        ;;
    esac
    sleep "$pause"
done
