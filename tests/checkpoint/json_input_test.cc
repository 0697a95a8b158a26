#include "lockstep/checkpoint/json_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

TEST(JsonInput, MakesWhatTheTextDescribes) {
  for (const char* text :
       {"null", "[]", "{}", "-1.5e3", R"("\u00e9")", R"({"b": [1, -2, 3.5, {"c": null}], "a": {"x": true}})"}) {
    EXPECT_EQ(parse_json<json>(text), json::parse(text)) << text;
    EXPECT_EQ(parse_json<ordered_json>(text).dump(), ordered_json::parse(text).dump()) << text;
  }
}

TEST(JsonInput, RefusesWhatReadersTakeInSeveralWays) {
  EXPECT_ERROR(parse_json<json>("[[[1]]]", {.depth = 2}), "it is nested more than 2 deep");
  EXPECT_ERROR(parse_json<json>(std::string(10'000'000, '[')), "it is nested more than 16 deep");
  EXPECT_ERROR(parse_json<json>(R"({"a": 1, "b": {"a": 2}, "a": 3})"), "it has \"a\" more than once");
  EXPECT_ERROR(parse_json<ordered_json>(R"([{"a": 1, "a": 3}])"), "it has \"a\" more than once");
  EXPECT_ERROR(parse_json<json>(R"({"a": 1, "b": 2})", {.what = "f", .names = 1}),
               "f has an object of more than 1 names");
  EXPECT_ERROR(parse_json<json>("[1, [1, 2, 3]]", {.what = "f", .elements = 2}),
               "f has a list of more than 2 elements");
  // Members that are handed on may be many.
  int members = 0;
  parse_json<json>(R"({"a": 1, "b": {"c": 1}})", {.names = 1}, [&](const std::string&, const json&) { ++members; });
  EXPECT_EQ(members, 2);
  EXPECT_ERROR(parse_json<json>(std::string_view("{}\0{", 4)), "it has a NUL byte at its byte 3 of 4");
  EXPECT_ERROR(parse_json<json>("\xEF\xBB\xBF{}"), "it begins with a byte order mark");
  for (const char* text : {"", "{", "[1,]", "{} {}", R"({"a" 1})", "1e999", "\"\xff\""}) {
    EXPECT_THROW(parse_json<json>(text), json::exception) << text;
    EXPECT_FALSE(find_json<json>(text).has_value()) << text;
  }
}

TEST(JsonInput, MembersAreGivenOneByOne) {
  std::string seen;
  const json rest = parse_json<json>(R"({"a": [1, 2], "b": {"c": 3}, "d": 4})", {},
                                     [&](const std::string& name, const json& value) { seen += name + value.dump(); });
  EXPECT_EQ(seen, R"(a[1,2]b{"c":3}d4)");
  EXPECT_EQ(rest, json::object());
  EXPECT_EQ(parse_json<json>("[{\"a\": 1}]", {}, [&](const std::string&, const json&) { seen.clear(); }).size(), 1);
  EXPECT_FALSE(seen.empty());
}

// nlohmann's own parser, with a callback, looks at all members of an object again where one of them ends: here for
// minutes, so that the test runs out of time.
TEST(JsonInput, TakesTimeInProportionToTheText) {
  constexpr int kMembers = 400'000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{\"n\":[1,2]}";
  text += "}";
  EXPECT_EQ(parse_json<json>(text).size(), kMembers);
  EXPECT_EQ(parse_json<ordered_json>(text).size(), kMembers);
}

}  // namespace
}  // namespace lockstep
