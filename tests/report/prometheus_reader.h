// A strict reader of Prometheus' text format, version 0.0.4, for tests. Throws std::runtime_error for what the format
// does not allow.
#pragma once

#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

class PrometheusReader {
 public:
  using Labels = std::map<std::string, std::string>;

  explicit PrometheusReader(std::string_view text) {
    if (!text.empty() && text.back() != '\n') fail("the last line does not end");
    while (!text.empty()) {
      line_ = text.substr(0, text.find('\n'));
      text.remove_prefix(line_.size() + 1);
      if (!line_.empty()) read_line();
    }
  }

  std::map<std::string, std::string> types, help;
  std::map<std::pair<std::string, Labels>, double> samples;

 private:
  [[noreturn]] void fail(const std::string& why) const { throw std::runtime_error(why + ": " + std::string(line_)); }

  void expect(char c) {
    if (line_.empty() || line_.front() != c) fail(std::string("expected ") + c);
    line_.remove_prefix(1);
  }

  std::string name(bool colons) {
    std::size_t n = 0;
    const auto letter = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c == ':' && colons);
    };
    while (n < line_.size() && (letter(line_[n]) || (n > 0 && line_[n] >= '0' && line_[n] <= '9'))) ++n;
    if (n == 0) fail("expected a name");
    const std::string found(line_.substr(0, n));
    line_.remove_prefix(n);
    return found;
  }

  // Up to `end`, or the end of the line if that is 0.
  std::string escaped(char end) {
    std::string text;
    while (true) {
      if (line_.empty()) {
        if (end == '\0') return text;
        fail("a label does not end");
      }
      const char c = line_.front();
      line_.remove_prefix(1);
      if (c == end) return text;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (line_.empty()) fail("a lone backslash");
      const char next = line_.front();
      line_.remove_prefix(1);
      if (next != '\\' && next != 'n' && (next != '"' || end == '\0')) fail("an unknown escape");
      text += next == 'n' ? '\n' : next;
    }
  }

  // All lines of a metric stand together.
  void begin(const std::string& metric) {
    if (metric == current_) return;
    if (!finished_.insert(metric).second) fail("the lines of a metric are apart");
    current_ = metric;
  }

  void read_line() {
    if (line_.starts_with("# HELP ")) {
      line_.remove_prefix(7);
      const std::string metric = name(true);
      begin(metric);
      expect(' ');
      if (!help.emplace(metric, escaped('\0')).second) fail("a second HELP");
      return;
    }
    if (line_.starts_with("# TYPE ")) {
      line_.remove_prefix(7);
      const std::string metric = name(true);
      begin(metric);
      expect(' ');
      static const std::set<std::string_view> known{"counter", "gauge", "histogram", "summary", "untyped"};
      if (!known.contains(line_)) fail("an unknown type");
      if (sampled_.contains(metric)) fail("a type after samples");
      if (!types.emplace(metric, line_).second) fail("a second TYPE");
      return;
    }
    if (line_.starts_with("#")) return;
    const std::string metric = name(true);
    begin(metric);
    sampled_.insert(metric);
    Labels labels;
    if (!line_.empty() && line_.front() == '{') {
      expect('{');
      while (line_.empty() || line_.front() != '}') {
        const std::string label = name(false);
        expect('=');
        expect('"');
        if (!labels.emplace(label, escaped('"')).second) fail("a label twice");
        if (!line_.empty() && line_.front() == ',') line_.remove_prefix(1);
      }
      expect('}');
    }
    expect(' ');
    const std::string number(line_);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || number.front() == ' ') fail("expected a number");
    if (!samples.emplace(std::pair(metric, labels), value).second) fail("a sample twice");
  }

  std::string_view line_;
  std::string current_;
  std::set<std::string> finished_, sampled_;
};

}  // namespace lockstep
