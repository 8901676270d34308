#!/bin/sh
# preload.sh LIBRARY PROGRAM [ARGUMENT]...: runs the program with the library preloaded, and nothing else of the test's machinery.
library=$1
shift
LD_PRELOAD=$library exec "$@"
