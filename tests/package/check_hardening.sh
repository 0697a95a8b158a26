#!/bin/sh
# check_hardening.sh FOLDER FILE...: fails unless each program and shared library has what `checksec` looks for: no
# fixed address, a read-only table of symbols that are bound at the start, a stack that is not executable, canaries, and
# checked functions of the C library. And no file, archives included, may have the path FOLDER of the build in it, or what
# nvcc makes of the path.
folder=$1
shift
failed=0
fail() {
  echo "$1"
  failed=1
}
for file; do
  # Not ./lockstep/net/secret.cc, where the folder is /lockstep.
  path=$(strings "$file" | grep -E "(^|[^[:alnum:]./_-]|-[A-Z])$folder(/|\$)" | head -n 1)
  [ -z "$path" ] || fail "$file: has the path $folder in it: $path"
  # What nvcc makes of the path and of its process id.
  name=$(nm -a "$file" 2> /dev/null | grep -m 1 -E '_GLOBAL__N__[0-9a-f]{8}_|tmpxft_')
  [ -z "$name" ] || fail "$file: has a name that depends on the folder or on the process of the build: $name"
  case $file in *.a) continue ;; esac
  headers=$(readelf -hlW "$file") dynamic=$(readelf -dW "$file") symbols=$(readelf -sW "$file")
  case $headers in *"Type:"*DYN*) ;; *) fail "$file: has a fixed address, expected a position-independent file" ;; esac
  case $headers in *GNU_RELRO*) ;; *) fail "$file: no RELRO" ;; esac
  case $dynamic in *NOW*) ;; *) fail "$file: binds symbols late, expected BIND_NOW" ;; esac
  echo "$headers" | grep -q 'GNU_STACK.* RW ' || fail "$file: its stack may be executable"
  case $symbols in *__stack_chk_fail*) ;; *) fail "$file: no stack protector" ;; esac
  echo "$symbols" | grep -qE '__(mem|str|read|recv|snprintf|fprintf|vsnprintf)[a-z]*_chk' ||
    fail "$file: no checked functions (FORTIFY)"
done
exit $failed
