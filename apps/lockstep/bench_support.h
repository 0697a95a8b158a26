// What the benchmarks share: how time is taken, and how results are printed and written.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

// The options that every benchmark has.
struct BenchOptions {
  int rounds = 5;
};

// Seconds that one call takes.
double seconds_of(const std::function<void()>& work);
double median(std::vector<double> values);

struct Timing {
  std::vector<double> rounds;  // seconds
  double median_ms() const { return 1e3 * median(rounds); }
};

// Times each part once a round, in turn, so that a machine that changes its speed changes it for all of them. A round
// before the first one warms up and does not count.
std::vector<Timing> time_in_rounds(int rounds, const std::vector<std::function<void()>>& parts);

// The share of the shorter parts that took no time of its own: 1 if all ran beside the longest, 0 if one after the other.
// Of two parts: (a + b - together) / min(a, b).
double hidden(const std::vector<double>& parts, double together);

// A place in a table: as printed, and as JSON has it.
struct Cell {
  Cell(const char* text) : Cell(std::string(text)) {}
  Cell(std::string text) : text(text), value(std::move(text)) {}
  Cell(double number, int digits);
  std::string text;
  nlohmann::json value;
};

// Prints results as they come and gathers them for JSON.
class Report {
 public:
  explicit Report(const std::string& benchmark);

  // How the benchmark was set: "products" = 40. Not printed.
  void set(const std::string& name, nlohmann::json value) { json_["settings"][name] = std::move(value); }
  // Columns are aligned; JSON has an object a row, with the headings as names.
  void table(const std::string& title, const std::vector<std::string>& headings,
             const std::vector<std::vector<Cell>>& rows);
  // A paragraph of its own.
  void note(const std::string& text);
  // The rounds behind the medians, in seconds.
  void timings(const std::string& name, std::span<const Timing> timings);

  std::string json() const { return json_.dump(2) + '\n'; }

 private:
  nlohmann::ordered_json json_;
};

}  // namespace lockstep::app
