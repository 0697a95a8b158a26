#!/bin/sh
# scripts/doxygen_filter.sh HEADER: the header with its comments as Doxygen reads them. The first comment is the file's; code in
# comments is indented by two columns. Doxygen does not find the namespace of specializations in fmt.
exec sed -E \
  -e '1s@^// @/// \\file\n/// @' \
  -e 's@^( *)//   @\1///     @' \
  -e 's@struct fmt::formatter<@struct formatter<@' \
  -e 's@^( *)//( |$)@\1///\2@' \
  -e 's@([;,{(]) *// @\1  ///< @' "$1"
