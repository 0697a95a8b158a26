// The settings that decide the bits of a training run, by name: seed, shards, threads per shard, batch size, and so on.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

class Recipe {
 public:
  // A Boolean, an integer, a floating-point number, or a string. 1 and 1.0 differ.
  class Value {
   public:
    Value(bool value) : value_(value) {}
    template <std::integral T>
    Value(T value) {
      if (value < T{0})
        value_ = static_cast<std::int64_t>(value);
      else
        value_ = static_cast<std::uint64_t>(value);
    }
    Value(double value) : value_(value) {}
    Value(std::string value) : value_(std::move(value)) {}
    Value(std::string_view value) : value_(std::string(value)) {}
    Value(const char* value) : value_(std::string(value)) {}

    bool operator==(const Value&) const = default;
    // Null for a value of another type. An integer is an std::uint64_t if it is 0 or more, otherwise an std::int64_t.
    template <typename T>
    const T* as() const {
      return std::get_if<T>(&value_);
    }
    // true, 3, 0.1, "sgd". Numbers survive a round trip exactly.
    std::string json() const;

   private:
    friend class Recipe;
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string> value_;
  };
  using Entry = std::pair<std::string, Value>;

  Recipe() = default;
  Recipe(std::initializer_list<Entry> entries);

  // Replaces the entry of that name, or adds one after all others.
  void set(std::string_view name, Value value);
  void erase(std::string_view name);
  // Sets every entry of `other`.
  void update(const Recipe& other);

  // Null if there is no entry of that name.
  const Value* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throws, with the name, if there is no such entry.
  const Value& at(std::string_view name) const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  // The same entries in the same order.
  bool operator==(const Recipe&) const = default;

  // Converts to one JSON object, {"seed":0,"optimizer":"sgd"}, and back. Throws for text that is not an object of
  // values.
  std::string json() const;
  static Recipe from_json(std::string_view text);

 private:
  std::vector<Entry> entries_;
};

// SHA-256 of the recipe, 64 hexadecimal digits; the order of the names does not matter. The first eight identify a run.
std::string recipe_hash(const Recipe& recipe);

}  // namespace lockstep
