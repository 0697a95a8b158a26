#include "lockstep/checkpoint/json_input.h"

#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

// nlohmann's SAX interface. Makes the value that the text describes.
template <typename Json>
class JsonBuilder : public nlohmann::json_sax<Json> {
 public:
  using Member = std::function<void(const std::string& name, Json value)>;
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  JsonBuilder(const JsonLimits& limits, const Member& member) : limits_(limits), member_(member) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool key(string_t& name) override {
    std::unordered_set<std::string>& names = open_.back().names;
    check(names.insert(name).second, "{} has {} more than once", limits_.what, excerpt(name));
    check(names.size() <= limits_.names || (member_ && open_.size() == 1), "{} has an object of more than {} names",
          limits_.what, limits_.names);
    open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // Throws a copy of the same type, as nlohmann's own parser would.
    if (const auto* syntax = dynamic_cast<const nlohmann::detail::parse_error*>(&error)) throw *syntax;
    if (const auto* range = dynamic_cast<const nlohmann::detail::out_of_range*>(&error)) throw *range;
    fail("{} is not valid JSON: {}", limits_.what, error.what());
  }

 private:
  struct Open {
    Json value;
    std::string name;  // of the next member
    std::unordered_set<std::string> names;
  };

  bool open(Json value) {
    check(open_.size() < limits_.depth, "{} is nested more than {} deep", limits_.what, limits_.depth);
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& parent = open_.back(); parent.value.is_array()) {
      check(parent.value.size() < limits_.elements, "{} has a list of more than {} elements", limits_.what,
            limits_.elements);
      parent.value.push_back(std::move(value));
    } else if (member_ && open_.size() == 1) {
      member_(parent.name, std::move(value));
    } else {
      append(parent.value.template get_ref<typename Json::object_t&>(), std::move(parent.name), std::move(value));
    }
    return true;
  }

  static void append(typename Json::object_t& object, std::string name, Json value) {
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      // Bypasses ordered_map::emplace(), which looks at all names: key() has found this name to be new.
      using Members = std::vector<std::pair<const std::string, Json>>;
      static_cast<Members&>(object).emplace_back(std::move(name), std::move(value));
    } else {
      object.emplace(std::move(name), std::move(value));
    }
  }

  const JsonLimits& limits_;
  const Member& member_;
  Json root_;
  std::vector<Open> open_;
};

}  // namespace

std::string excerpt(const nlohmann::json& value) {
  constexpr std::size_t kMost = 120;
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

template <typename Json>
Json parse_json(std::string_view text, const JsonLimits& limits,
                const std::function<void(const std::string& name, Json value)>& member) {
  // The parser would skip a byte order mark and treat a NUL byte as the end.
  check(!text.starts_with("\xEF\xBB\xBF"), "{} begins with a byte order mark, expected JSON", limits.what);
  const std::size_t nul = text.find('\0');
  check(nul == text.npos, "{} has a NUL byte at its byte {} of {}", limits.what, nul + 1, text.size());
  if (!member) check_file_memory(text.size() * kMemoryPerJsonByte, kAnyProportion, limits.what, "JSON");
  JsonBuilder<Json> builder(limits, member);
  Json::sax_parse(text, &builder);
  return builder.take();
}

template nlohmann::json parse_json(std::string_view, const JsonLimits&,
                                   const std::function<void(const std::string&, nlohmann::json)>&);
template nlohmann::ordered_json parse_json(std::string_view, const JsonLimits&,
                                           const std::function<void(const std::string&, nlohmann::ordered_json)>&);

}  // namespace lockstep
