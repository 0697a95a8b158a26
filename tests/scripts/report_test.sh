#!/usr/bin/env bash
# Tests what ./test prints about its tests, with a few tests of no project. report_test.sh PROJECT FOLDER CTEST
set -euo pipefail
project=$1 folder=$2
failed=0
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/build"
ln -s "$3" "$folder/bin/ctest"
cat > "$folder/build/CTestTestfile.cmake" <<'TEXT'
add_test(good.one sh -c "echo fine")
add_test(bad.one sh -c "echo '1 < 2 went wrong'; exit 3")
add_test(missing.one /no/such/program)
foreach(n 1 2)
  add_test(skipped.${n} sh -c "echo '/tests/some_test.cc:59: Skipped'; echo 'needs <two> GPUs'; echo '[  SKIPPED ] skipped'")
  set_tests_properties(skipped.${n} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED")
endforeach()
add_test(skipped.by_status sh -c "echo no doxygen; exit 77")
set_tests_properties(skipped.by_status PROPERTIES SKIP_RETURN_CODE 77)
TEXT
# run OPTION...: as ./test does, with a second run of one test.
run() {
  status=0
  output=$(cd "$folder" && PATH="$folder/bin:$PATH" bash -c '
    set -euo pipefail
    . "$0/scripts/common.sh"; . "$0/scripts/run_tests.sh"
    run_tests build "$@"; run_tests build -R good; report 400
    ! $tests_failed' "$project" "$@" 2>&1) || status=$?
}
expect() {  # WHAT VALUE PATTERN
  [[ $2 == $3 ]] || { failed=1; printf '%s is\n%s\nexpected %s\n' "$1" "$2" "$3"; }
}

run
expect status "$status" 1
expect "progress" "$output" "*lockstep: running the tests in build/; all output goes to build/tests.log*lockstep: failed: bad.one*lockstep: 6 of 6 tests, 2 failed, 0:0?*"
expect "failures" "$output" "*---- bad.one*Failed*1 < 2 went wrong*"
expect "a missing program" "$output" "*---- missing.one*Not Run*"
expect "skips" "$output" "*skipped: skipped.[12] and 1 more: needs <two> GPUs*"
expect "a skip by status" "$output" "*skipped: skipped.by_status: no doxygen*"
expect "the end" "$output" "*67% tests passed, 2 tests failed out of 6*The following tests FAILED:*bad.one (Failed)*100% tests passed, 0 tests failed out of 1*
2 passed, 2 failed, 3 skipped; build 6:??, tests 0:0?; all output: build/tests.log build/tests-2.log"
expect "what is not in the report" "$(grep -E 'fine|Start |skipped: missing' <<< "$output" || true)" ""
expect "the log" "$(cat "$folder/build/tests.log")" "*Start *good.one*Passed*"

run -R 'good|skipped'
expect status "$status" 0
expect "the end" "$output" "*
2 passed, 0 failed, 3 skipped; build *"

run -R nothing
expect status "$status" 1
expect "no test" "$output" "*no test ran; build/tests.log ends with:*No tests were found*"

exit $failed
