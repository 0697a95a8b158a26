#include "lockstep/checkpoint/training_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/json_input.h"

namespace lockstep {
namespace {

// Replaces bytes that are not UTF-8 instead of throwing, because a path in a recipe may contain any bytes.
std::string dump(const auto& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

Recipe::Value value_from(const std::string& name, const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  check(json.is_string(), "recipe: {} is {}, expected a number, a string, true, or false", excerpt(name),
        excerpt(json));
  return json.get<std::string>();
}

}  // namespace

std::string Recipe::Value::json() const {
  return std::visit([](const auto& value) { return dump(nlohmann::json(value)); }, value_);
}

Recipe::Recipe(std::initializer_list<Entry> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Recipe::set(std::string_view name, Value value) {
  // JSON has neither NaN nor infinities, so a checkpoint could not be resumed.
  if (const double* number = value.as<double>())
    check(std::isfinite(*number), "recipe: {} is {}, expected a finite number", name, *number);
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  if (found == entries_.end()) {
    entries_.emplace_back(name, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

void Recipe::erase(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; });
}

void Recipe::update(const Recipe& other) {
  for (const auto& [name, value] : other) set(name, value);
}

const Recipe::Value* Recipe::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  return found == entries_.end() ? nullptr : &found->second;
}

const Recipe::Value& Recipe::at(std::string_view name) const {
  const Value* found = find(name);
  check(found != nullptr, "recipe: there is no {}", name);
  return *found;
}

std::string Recipe::json() const {
  std::string text;
  for (const auto& [name, value] : entries_) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", dump(nlohmann::json(name)), value.json());
  }
  return "{" + text + "}";
}

Recipe Recipe::from_json(std::string_view text) {
  const auto json = find_json<nlohmann::ordered_json>(text);
  check(json && json->is_object(), "the recipe is {}, expected an object",
        json ? excerpt(*json) : fmt::format("{:?}", text.substr(0, 40)));
  Recipe recipe;  // without set(), which compares with all names: the parser has found these to differ
  for (const auto& [name, value] : json->items()) recipe.entries_.emplace_back(name, value_from(name, value));
  return recipe;
}

std::string recipe_hash(const Recipe& recipe) {
  Sha256 hash;
  // nlohmann::json sorts names.
  const std::string sorted = dump(parse_json<nlohmann::json>(recipe.json()));
  hash.update(std::as_bytes(std::span(sorted)));
  return hash.hex();
}

}  // namespace lockstep
