# Runs tests for ./test: one line of progress on a terminal, a few lines elsewhere, and a report at the end. All that
# ctest prints is in a log beside what was built.

runs=()             # the logs, build/tests.log; build/tests.xml has the same in JUnit's format
tests_failed=false  # or could not run
test_seconds=0
interrupted=false

# As 5:09.
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# run_tests FOLDER OPTION...: ctest's options choose the tests. Four tests more than cores, because many mostly wait.
# OpenMP's threads sleep while they wait, instead of taking the cores from other tests. Goes on after failures: `report`
# tells them.
run_tests() {
  local log=$1/tests.log begin=$SECONDS number=1
  while [[ " ${runs[*]-} " == *" $log "* ]]; do
    number=$((number + 1))
    log=$1/tests-$number.log
  done
  runs+=("$log")
  say "running the tests in $1/; all output goes to $log"
  follow "$log" < <(OMP_WAIT_POLICY=passive ctest --test-dir "$1" --output-on-failure -j"$(($(nproc) + 4))" \
    --output-junit "$PWD/${log%.log}.xml" "${@:2}" 2>&1 < /dev/null)
  wait $! || tests_failed=true
  test_seconds=$((test_seconds + SECONDS - begin))
}

# Copies ctest's output to a log, and shows how far it is.
follow() {
  local line name done=0 total=0 failed=0 tenths=0 begin=$SECONDS columns=80 terminal=false
  if [ -t 2 ]; then
    terminal=true
    read -r _ columns < <(stty size <&2 2>/dev/null || echo 24 80) || true
    [ "$columns" -gt 20 ] || columns=80
  fi
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line" >&3
    [[ $line =~ ^\ *([0-9]+)/([0-9]+)\ Test\ +#[0-9]+:\ (.*) ]] || continue
    done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} line=${BASH_REMATCH[3]}
    name=${line%% ..*}
    name=${name%%  # GetParam*}
    if [[ $line == *'***'* && $line != *'***Skipped'* ]]; then
      failed=$((failed + 1))
      ! $terminal || printf '\r\033[K' >&2
      say "failed: $name"
    fi
    if $terminal; then
      line="$done of $total tests, $failed failed, $(clock $((SECONDS - begin))), $name"
      printf '\r\033[K%s' "${line:0:columns-1}" >&2
    elif [ $((10 * done / total)) -gt $tenths ]; then
      tenths=$((10 * done / total))
      say "$done of $total tests, $failed failed, $(clock $((SECONDS - begin)))"
    fi
  done 3> "$1"
  ! $terminal || printf '\r\033[K' >&2
  if [ "$total" -eq 0 ]; then
    tests_failed=true
    say "no test ran; $1 ends with:"
    tail -n 20 "$1" >&2
  fi
}

# Prints the output of the tests that failed, from a log.
failures() {
  awk -v most=200 '
    function flush(  i) {
      if (count == 0) return
      print "---- " name
      if (count > most) print "(the last " most " of " count " lines)"
      for (i = count > most ? count - most + 1 : 1; i <= count; ++i) print lines[i]
      print ""
      count = 0
    }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / || /^ +Start +[0-9]+: / || /^[0-9]+% tests passed, / {
      flush()
      failing = / Test +#[0-9]+: / && /\*\*\*/ && !/\*\*\*Skipped/
      if (!failing) next
      name = $0
      sub(/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /, "", name)
      gsub(/ \.\.+ */, "  ", name)
      count = 0
      lines[++count] = "     " FILENAME
      next
    }
    failing { lines[++count] = $0 }
    END { flush() }' "$1"
}

# Prints why tests were skipped, from a JUnit file: each reason once, with the first test and how many more.
skips() {
  [ -f "$1" ] || return 0
  awk '
    function plain(s) {
      gsub(/&lt;/, "<", s); gsub(/&gt;/, ">", s); gsub(/&quot;/, "\"", s); gsub(/&apos;/, "\047", s); gsub(/&amp;/, "\\&", s)
      return s
    }
    /<testcase name="/ {
      skipped = /status="notrun"/
      name = $0
      sub(/.*<testcase name="/, "", name); sub(/" classname=.*/, "", name); sub(/  # GetParam.*/, "", name)
      reason = last = ""; after = 0
    }
    /<skipped message="/ && !/<skipped message="SKIP_/ { skipped = 0 }  # its program is missing: a failure
    !skipped { next }
    /<system-out>/ { sub(/.*<system-out>/, "") }
    /<\/testcase>/ {
      if (reason == "") reason = last == "" ? "no reason given" : last
      if (!(reason in count)) order[++reasons] = reason
      if (count[reason]++ == 0) first[reason] = name
      skipped = 0
      next
    }
    after && reason == "" && !/^\[/ && NF { reason = $0 }
    / Skipped$/ || /: Skipped *$/ { after = 1; next }
    { sub(/<\/system-out>.*/, "") }
    NF && !/<(skipped|failure|properties|property)/ && !/^\[/ && !/^Running main|^Note: Google/ { last = $0 }
    END {
      for (i = 1; i <= reasons; ++i) {
        reason = order[i]
        more = count[reason] > 1 ? " and " count[reason] - 1 " more" : ""
        print "skipped: " plain(first[reason]) more ": " plain(reason)
      }
    }' "$1"
}

# report SECONDS: prints failures with their output, skips with their reasons, ctest's closing lines, and one line with
# the counts and times; SECONDS is how long everything took, building included.
report() {
  local log counts total failed skipped passed=0 all_failed=0 all_skipped=0
  [ ${#runs[@]} -gt 0 ] || return 0
  for log in "${runs[@]}"; do failures "$log"; done
  for log in "${runs[@]}"; do skips "${log%.log}.xml"; done
  for log in "${runs[@]}"; do
    # Without the times of labels and the list of skipped tests, whose reasons are above.
    awk '/^[0-9]+% tests passed, / { on = 1 }
         /^Label Time Summary:|^The following tests did not run:/ { on = 0 }
         /^Total Test time|^The following tests FAILED:|^Errors while/ { on = 1 }
         on && NF' "$log"
    counts=$(awk '/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
                    if (/\*\*\*Skipped/) ++skipped; else if (/\*\*\*/) ++failed; else ++passed
                  }
                  END { print passed + 0, failed + 0, skipped + 0 }' "$log")
    read -r total failed skipped <<< "$counts"
    passed=$((passed + total)) all_failed=$((all_failed + failed)) all_skipped=$((all_skipped + skipped))
  done
  printf '%d passed, %d failed, %d skipped; build %s, tests %s; all output: %s\n' "$passed" "$all_failed" "$all_skipped" \
    "$(clock $(($1 - test_seconds)))" "$(clock "$test_seconds")" "${runs[*]}"
}
