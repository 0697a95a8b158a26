// Internal: the secret of a job. Only processes that know it may join.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns LOCKSTEP_SECRET, or the contents of the file that LOCKSTEP_SECRET_FILE names, without trailing white space;
// empty if neither is set. Throws if both are set, if the secret has fewer than 16 characters, or if anyone besides the
// file's owner and group may read the file.
std::string read_secret();

// Makes a new secret of 64 hexadecimal digits.
std::string make_secret();

// Appended to errors about a missing secret.
inline constexpr std::string_view kHowToSetSecret =
    "set LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE, to the same random text on all hosts (openssl rand -hex "
    "32)";

}  // namespace lockstep
