// Measures times, and prints and writes results; shared by the benchmarks.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

// Options of every benchmark.
struct BenchOptions {
  int rounds = 5;
};

// Returns the seconds that one call takes.
double seconds_of(const std::function<void()>& work);
double median(std::vector<double> values);

struct Timing {
  std::vector<double> rounds;  // seconds
  double median_ms() const { return 1e3 * median(rounds); }
};

// Times the parts in turns, once each per round, so that a change of the machine's speed affects all of them. A first
// round warms up and does not count.
std::vector<Timing> time_in_rounds(int rounds, const std::vector<std::function<void()>>& parts);

// Returns the share of the shorter parts that took no time of its own: 1 if all ran at the same time as the longest
// part, 0 if they ran one after another. For two parts: (a + b - together) / min(a, b).
double hidden(const std::vector<double>& parts, double together);

// A cell of a table: its text, and its JSON value.
struct Cell {
  Cell(const char* text) : Cell(std::string(text)) {}
  Cell(std::string text) : text(text), value(std::move(text)) {}
  Cell(double number, int digits);
  std::string text;
  nlohmann::json value;
};

// Prints results as they come and collects them for JSON.
class Report {
 public:
  // `prints`: false for ranks other than 0.
  Report(const std::string& benchmark, bool prints);

  // Prints the title, once. Benchmarks call it after they have checked their options, before they measure.
  void begin();
  // Records a setting of the benchmark, such as "products" = 40. Not printed.
  void set(const std::string& name, nlohmann::json value) { json_["settings"][name] = std::move(value); }
  // Columns are aligned. JSON has one object per row, with the headings as names.
  void table(const std::string& title, const std::vector<std::string>& headings,
             const std::vector<std::vector<Cell>>& rows);
  // Prints a paragraph.
  void note(const std::string& text);
  // Records the times of all rounds, in seconds, of which tables have the medians.
  void timings(const std::string& name, std::span<const Timing> timings);

  std::string json() const { return json_.dump(2) + '\n'; }

 private:
  nlohmann::ordered_json json_;
  bool prints_, begun_ = false;
};

}  // namespace lockstep::app
