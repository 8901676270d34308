#!/bin/sh
# libfabric's own fi_info and fi_pingpong with its own EFA provider on the modelled card: two processes, two hosts.
# usage: pingpong.sh CARD. 77: they are not installed, or this libfabric has no EFA provider.
command -v fi_pingpong >/dev/null || exit 77
card=$1
run() { LD_PRELOAD=$card SIMFAB=$spec timeout 100 "$@"; }

spec=p5,nics=2,card=efa,strict=1
listed=$(run fi_info -p efa) || { fi_info --list 2>/dev/null | grep -q '^efa:' || exit 77; exit 1; }
echo "$listed" | grep -q 'domain: rdmap80s0-rdm' || { echo "$listed"; exit 1; }

port=$((32000 + $$ % 12000))
for type in rdm dgram; do
	for machine in p5 p5en,emulated=1; do
		port=$((port + 1))
		spec=$machine,nics=1,card=efa,strict=1
		run fi_pingpong -p efa -e $type -B "$port" -I 20 -c >/dev/null 2>&1 &
		server=$!
		tries=0
		# The client fails at once until the server listens.
		until run fi_pingpong -p efa -e $type -P "$port" -I 20 -c 127.0.0.1; do
			tries=$((tries + 1))
			[ "$tries" -lt 100 ] && kill -0 "$server" 2>/dev/null || exit 1
		done
		wait "$server" || exit 1
	done
done
