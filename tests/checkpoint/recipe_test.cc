#include "lockstep/checkpoint/training_checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <limits>
#include <string>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(Recipe, KeepsItsEntriesInOrder) {
  Recipe recipe = {{"seed", 3}, {"lr", 0.1}, {"optimizer", "sgd"}};
  recipe.set("shuffle", true);
  recipe.set("lr", 0.2);  // in its old place
  recipe.update({{"seed", 4}, {"shards", 8}});
  recipe.erase("optimizer");
  EXPECT_EQ(recipe, (Recipe{{"seed", 4}, {"lr", 0.2}, {"shuffle", true}, {"shards", 8}}));
  EXPECT_EQ(recipe.at("shards"), 8);
  EXPECT_FALSE(recipe.contains("optimizer"));
  EXPECT_ERROR(recipe.at("optimizer"), "recipe: there is no optimizer");
}

TEST(Recipe, GoesThroughJsonExactly) {
  const Recipe recipe = {{"seed", std::numeric_limits<std::uint64_t>::max()},
                         {"least", std::numeric_limits<std::int64_t>::min()},
                         {"lr", 1.0 / 3},
                         {"momentum", 0.0},
                         {"shuffle", false},
                         {"model", "a \"net\""}};
  EXPECT_EQ(recipe.json(), R"({"seed":18446744073709551615,"least":-9223372036854775808,"lr":0.3333333333333333,)"
                           R"("momentum":0.0,"shuffle":false,"model":"a \"net\""})");
  EXPECT_EQ(Recipe::from_json(recipe.json()), recipe);
  EXPECT_EQ(Recipe::from_json("{}"), Recipe{});
  EXPECT_NE(recipe.at("momentum"), 0);  // an integer
  EXPECT_ERROR(Recipe::from_json("[1]"), "the recipe is [1], expected an object");
  EXPECT_ERROR(Recipe::from_json("{"), "the recipe is \"{\", expected an object");
  EXPECT_ERROR(Recipe::from_json(R"({"lr": [0.1]})"),
               "recipe: \"lr\" is [0.1], expected a number, a string, true, or false");
}

TEST(Recipe, ErrorsAreOneLine) {
  EXPECT_ERROR(Recipe::from_json("\n[[]"), R"(the recipe is "\n[[]", expected an object)");
  EXPECT_ERROR(Recipe::from_json(R"({"a\nb": []})"), R"(recipe: "a\nb" is [], expected a number)");
}

// A stranger's receipt has a recipe, too.
TEST(Recipe, TimeIsInProportionToTheNames) {
  constexpr int kNames = 200'000;
  std::string text = "{";
  for (int i = 0; i < kNames; ++i) text += fmt::format("{}\"{}\":0", i == 0 ? "" : ",", i);
  text += "}";
  const std::clock_t begin = std::clock();
  EXPECT_EQ(Recipe::from_json(text).json(), text);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
}

TEST(Recipe, RefusesWhatJsonCannotHold) {
  Recipe recipe = {{"lr", 0.1}};
  EXPECT_ERROR(recipe.set("lr", std::numeric_limits<double>::quiet_NaN()),
               "recipe: lr is nan, expected a finite number");
  EXPECT_ERROR((Recipe{{"clip", -std::numeric_limits<double>::infinity()}}), "recipe: clip is -inf, expected");
  EXPECT_EQ(recipe, (Recipe{{"lr", 0.1}}));
}

TEST(RecipeHash, IsOfNamesAndValuesInAnyOrder) {
  const std::string hash = recipe_hash({{"seed", 0}, {"lr", 0.1}});
  EXPECT_EQ(hash, "ff0a64b8b4763380bc3fe638a20a0009284041e735565bcb2fa019f8a55fe989");
  EXPECT_EQ(recipe_hash({{"lr", 0.1}, {"seed", 0}}), hash);
  EXPECT_NE(recipe_hash({{"lr", 0.1}, {"seed", 1}}), hash);
  EXPECT_NE(recipe_hash({{"lr", 0.1}, {"seeds", 0}}), hash);
}

}  // namespace
}  // namespace lockstep
