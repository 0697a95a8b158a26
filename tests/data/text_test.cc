// Windows of a text as examples.

#include <gtest/gtest.h>

#include <set>

#include "lockstep/data/text.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> numbers(const Tensor& t) { return t.to_vector<std::int64_t>(); }

TEST(CharacterSet, NumbersTheCharactersThatOccur) {
  const CharacterSet set("hello \xff");
  EXPECT_EQ(set.size(), 6);  // ' ', e, h, l, o, 0xff
  EXPECT_EQ(set.encode("he \xff"), (std::vector<std::int64_t>{2, 1, 0, 5}));
  EXPECT_EQ(set.decode(set.encode("hello\xff")), "hello\xff");
  EXPECT_ERROR(set.encode("help"), "character 'p' (byte 112) is not one of the 6 known ones");
  EXPECT_ERROR(set.encode("\n"), "character '?' (byte 10)");
  EXPECT_ERROR(set.decode(std::vector<std::int64_t>{6}), "character number 6 is out of range [0, 6)");
}

TEST(TextDataset, TheLabelsAreTheNextCharacters) {
  const TextDataset text({0, 1, 2, 3, 4, 5, 6, 7}, {.context = 3});
  ASSERT_EQ(text.size(), 2);  // 7 characters have one behind them
  EXPECT_EQ(numbers(text.get(1)[0]), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(numbers(text.get(1)[1]), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(numbers(text.get(1, random_key(0, {7}))[0]), numbers(text.get(1)[0]));
  EXPECT_ERROR(text.get(2), "example 2 is out of range [0, 2)");
  EXPECT_ERROR(TextDataset({0, 1, 2}, {.context = 3}), "3 characters, expected more than the context of 3");
  EXPECT_ERROR(TextDataset({0, 1, 2}, {.context = 0}), "a context of 0");
}

TEST(TextDataset, RandomStartsReachAllPlacesAndDependOnTheKeyAlone) {
  const TextDataset text({0, 1, 2, 3, 4, 5, 6, 7}, {.context = 3, .random_starts = true});
  std::set<std::int64_t> starts;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Example example = text.get(0, random_key(1, {i}));
    const std::int64_t start = numbers(example[0])[0];
    EXPECT_EQ(numbers(example[0]), (std::vector<std::int64_t>{start, start + 1, start + 2}));
    EXPECT_EQ(numbers(example[1]), (std::vector<std::int64_t>{start + 1, start + 2, start + 3}));
    EXPECT_EQ(numbers(text.get(1, random_key(1, {i}))[0])[0], start);
    starts.insert(start);
  }
  EXPECT_EQ(starts, (std::set<std::int64_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace lockstep
