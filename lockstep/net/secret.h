// The secret of a job: only who knows it may join.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The value of LOCKSTEP_SECRET, or what is in the file that LOCKSTEP_SECRET_FILE names, without white space at its
// end; empty if neither is set. Throws if both are, if it has fewer than 16 characters, or if others than the file's
// owner and group may read it.
std::string read_secret();

// A new one: 64 hexadecimal digits.
std::string make_secret();

// For errors of those who need one: how to get it.
inline constexpr std::string_view kHowToSetSecret =
    "set LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE, to the same random text on all hosts (openssl rand -hex "
    "32)";

}  // namespace lockstep
