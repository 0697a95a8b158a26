#!/bin/sh
# check_texts.sh FILE COMPILER...: compiles FILE, and expects each text behind "says:" among the errors.
file=$1
shift
errors=$(LC_ALL=C "$@" -fsyntax-only "$file" 2>&1) && echo "$file compiles, expected errors" && exit 1
sed -n 's/.*says: //p' "$file" | {
  missing=0
  while IFS= read -r text; do
    case $errors in
      *"$text"*) ;;
      *) echo "no error says: $text"; missing=1 ;;
    esac
  done
  exit $missing
}
