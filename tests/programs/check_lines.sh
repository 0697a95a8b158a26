#!/bin/sh
# check_lines.sh SOURCE_DIR: docs/programs.md counts what is there: the lines of each program between its marks, and
# those of its peer on the page, in both cases without blank lines and comments. docs/tutorials.md counts the lines of
# the examples, also without #include.
page=$1/docs/programs.md
wrong=0
for file in "$1"/tests/programs/*.cc; do
  name=$(basename "$file" .cc)
  [ "$name" = main ] && continue
  ours=$(awk '/\/\/ program begins/ {on = 1; next} /\/\/ program ends/ {on = 0} on && !/^ *(\/\/.*)?$/' "$file" | wc -l)
  peer=$(awk -v heading="### $name" '$0 == heading {at = 1; next} /^###/ {at = 0} at && /^```/ {on = !on; next}
                                     at && on && !/^ *((\/\/|#).*)?$/' "$page" | wc -l)
  # | `name`: what it does | before | now | peer | ...
  said=$(awk -F '|' -v name="\`$name\`" 'index($2, name ":") {print $4 + 0, $5 + 0}' "$page")
  if [ "$said" != "$ours $peer" ]; then
    echo "$page says of $name: '$said', expected '$ours $peer': its lines now and its peer's"
    wrong=1
  fi
  if [ "$ours" -gt "$peer" ]; then
    echo "$name has $ours lines, its peer $peer"
    wrong=1
  fi
done
for name in multi_gpu_concise data_parallel ddp automatic_parallelism own_data; do
  lines=$(grep -cvE '^ *(//.*|#include.*)?$' "$1/examples/$name.cc")
  said=$(awk -F '|' -v name="[$name.cc]" 'index($3, name) && NF > 5 {print $4 + 0}' "$1/docs/tutorials.md")
  if [ "$said" != "$lines" ]; then
    echo "docs/tutorials.md says of $name: '$said', expected '$lines'"
    wrong=1
  fi
done
exit $wrong
