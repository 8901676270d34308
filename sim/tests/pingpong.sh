#!/bin/sh
# libfabric's own fi_pingpong over the simulated NICs: two processes. 77: fi_pingpong is not installed.
command -v fi_pingpong >/dev/null || exit 77
dir=$1
port=$((20000 + $$ % 12000)) # below those that connections get by chance
for spec in p5 verbs null; do
	port=$((port + 1))
	export FI_PROVIDER_PATH="$dir" SIMFAB="$spec,nics=1"
	timeout 40 fi_pingpong -p simfab -e rdm -B "$port" -I 100 -c >/dev/null 2>&1 &
	server=$!
	tries=0
	# The client fails at once until the server listens.
	until timeout 40 fi_pingpong -p simfab -e rdm -P "$port" -I 100 -c 127.0.0.1; do
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] && kill -0 "$server" 2>/dev/null || exit 1
	done
	wait "$server" || exit 1
done
