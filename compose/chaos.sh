#!/bin/sh
# Breaks one part of a running cluster after the other, and heals it: kills, pauses and cuts, drawn from CHAOS_SEED.
# Usage: chaos.sh PROJECT. Runs on the host as well as in the profile `chaos`. However it ends, it heals what it broke.
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

network() { # the first network of a container
    docker inspect --format '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}' "$1" | cut -d ' ' -f 1
}

# As a child that is waited for, it does not keep a signal waiting.
rest() {
    sleep "$1" &
    wait $!
}

broken= # what heal has to do: kill, pause or cut
heal() {
    case $broken in
    kill) docker start "$id" >/dev/null ;;
    pause) docker unpause "$id" >/dev/null ;;
    cut) docker network connect --alias "$part" "$cut_from" "$id" ;;
    *) return 0 ;;
    esac
    broken=
    echo "chaos: round $round: healed $part"
}
trap heal EXIT
trap 'exit 0' INT TERM

round=0
while [ "$rounds" -eq 0 ] || [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    draw 13
    part=$(echo "$parts" | cut -d ' ' -f $((drawn + 1)))
    draw 3
    fault_kind=$(echo "kill pause cut" | cut -d ' ' -f $((drawn + 1)))
    id=$(container "$part")
    [ -n "$id" ] || { echo "chaos: $part does not run"; exit 1; }
    echo "chaos: round $round: $fault_kind $part"
    case $fault_kind in
    kill)
        docker kill --signal KILL "$id" >/dev/null
        broken=kill
        ;;
    pause)
        docker pause "$id" >/dev/null
        broken=pause
        ;;
    cut)
        cut_from=$(network "$id")
        docker network disconnect "$cut_from" "$id"
        broken=cut
        ;;
    esac
    rest "$fault"
    heal
    rest "$pause"
done
echo "chaos: done"
