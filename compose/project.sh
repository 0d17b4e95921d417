# Sourced by smoke.sh and chaos-check.sh: a compose project of one run, with free ports, that leaves nothing behind.

if [ -z "${COMPOSE:-}" ]; then
    if docker compose version >/dev/null 2>&1; then COMPOSE="docker compose"; else COMPOSE="docker-compose"; fi
fi
run() { $COMPOSE --env-file local.env "$@" </dev/null; }

containers() { docker ps --all --quiet --filter "label=com.docker.compose.project=$1"; }
networks() { docker network ls --quiet --filter "label=com.docker.compose.project=$1"; }
volumes() { docker volume ls --quiet --filter "label=com.docker.compose.project=$1"; }

belongings() { # belongings PROJECT: everything it has, in one line
    { containers "$1"; networks "$1"; volumes "$1"; } | tr '\n' ' '
}

services() { # the services that run
    docker ps --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --format '{{.Label "com.docker.compose.service"}}'
}

lines_of_logs() { # every line, after its service's name
    local id service
    for id in $(containers "$COMPOSE_PROJECT_NAME"); do
        service=$(docker inspect --format '{{index .Config.Labels "com.docker.compose.service"}}' "$id")
        docker logs "$id" 2>&1 | sed "s/^/$service /"
    done
}

remove() { # remove PROJECT, whatever state it is in
    containers "$1" | xargs --no-run-if-empty docker rm --force --volumes >/dev/null
    networks "$1" | xargs --no-run-if-empty docker network rm >/dev/null
    volumes "$1" | xargs --no-run-if-empty docker volume rm >/dev/null
}

projects() { # every project that has something here
    local label='{{.Label "com.docker.compose.project"}}'
    {
        docker ps --all --filter label=com.docker.compose.project --format "$label"
        docker network ls --filter label=com.docker.compose.project --format "$label"
        docker volume ls --filter label=com.docker.compose.project --format "$label"
    } | sort --unique
}

begin_project() { # begin_project KIND: named after this process, so that two runs do not meet
    export COMPOSE_PROJECT_NAME="sightline-$1-$$"
    eval "$(python3 smoke.py ports)"
}

bring_up() {
    run up --detach >"$logs/up" 2>&1 || { cat "$logs/up" >&2; exit 1; }
    ! grep -i warn "$logs/up" || { echo "compose has warnings" >&2; exit 1; }
}

stop_all() { # and looks at how everything ends
    local id
    run stop --timeout 40 >"$logs/stop" 2>&1 || { cat "$logs/stop" >&2; exit 1; }
    for id in $(containers "$COMPOSE_PROJECT_NAME"); do
        docker inspect --format '{{index .Config.Labels "com.docker.compose.service"}} {{.State.ExitCode}} {{.RestartCount}} {{.State.OOMKilled}}' "$id"
    done | python3 smoke.py ends
}

take_down() { # the last thing that a run does
    local status=$? left
    trap - EXIT INT TERM
    if [ "$status" -ne 0 ]; then
        echo "failed ($status); the last of every log:" >&2
        run logs --no-color --tail 30 >&2 || true
    fi
    if [ -n "${keep:-}" ]; then
        echo "left up: project $COMPOSE_PROJECT_NAME, $(env | grep -E '_PORT=[0-9]+$' | sort | tr '\n' ' ')"
        exit "$status"
    fi
    run down --volumes --timeout 40 >"$logs/down" 2>&1 || { status=1; cat "$logs/down" >&2; }
    left=$(belongings "$COMPOSE_PROJECT_NAME")
    if [ -n "$left" ]; then
        echo "down has left $left" >&2
        remove "$COMPOSE_PROJECT_NAME"
        status=1
    fi
    rm -r "$logs"
    [ "$status" -ne 0 ] || echo "down: no container, volume or network is left"
    exit "$status"
}

take_down_at_exit() {
    logs=$(mktemp -d)
    trap take_down EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

clear_dead() { # takes away what runs that were killed have left
    local project pid
    for project in $(projects | grep -E '^sightline-(smoke|chaos)-[0-9]+$'); do
        pid=${project##*-}
        if ! grep -aqE 'smoke\.sh|chaos-check\.sh' "/proc/$pid/cmdline" 2>/dev/null; then
            echo "taking away what a killed run left: $project"
            remove "$project"
        fi
    done
}
