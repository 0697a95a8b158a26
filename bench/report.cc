#include "bench/report.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "lockstep/base/count_of.h"
#include "lockstep/device/topology.h"

namespace lockstep::app {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::vector<Timing> time_in_rounds(int rounds, const std::vector<std::function<void()>>& parts) {
  std::vector<Timing> timings(parts.size());
  for (const auto& part : parts) part();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < parts.size(); ++i) timings[i].rounds.push_back(seconds_of(parts[i]));
  }
  return timings;
}

double hidden(const std::vector<double>& parts, double together) {
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  return (sum - together) / (sum - std::ranges::max(parts));
}

Cell::Cell(double number, int digits) : text(fmt::format("{:.{}f}", number, digits)) {
  // Keeps six digits, more than a reader of the file can use.
  value = std::isfinite(number) ? nlohmann::json(std::stod(fmt::format("{:.6g}", number))) : nlohmann::json();
}

Report::Report(const std::string& benchmark, bool prints) : prints_(prints) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  json_["benchmark"] = benchmark;
  json_["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", now);
  json_["machine"] = {{"cpu", cpu_model_name()}, {"cores", available_cpus().size()}};
  json_["settings"] = nlohmann::ordered_json::object();
  json_["tables"] = nlohmann::ordered_json::array();
  json_["notes"] = nlohmann::ordered_json::array();
}

void Report::begin() {
  if (begun_ || !prints_) return;
  begun_ = true;
  fmt::print("{} on {} of {}\n", json_["benchmark"].get<std::string>(), count_of(std::ssize(available_cpus()), "core"),
             cpu_model_name());
  std::fflush(stdout);
}

void Report::table(const std::string& title, const std::vector<std::string>& headings,
                   const std::vector<std::vector<Cell>>& rows) {
  begin();
  if (prints_) fmt::print("\n{}\n", title);
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < headings.size(); ++i) {
    widths.push_back(headings[i].size());
    for (const auto& row : rows) widths[i] = std::max(widths[i], row.at(i).text.size());
  }
  auto print_line = [&](auto text_of) {
    if (!prints_) return;
    // The first column has names, and the others have numbers.
    fmt::print("  {:<{}}", text_of(0), widths[0]);
    for (std::size_t i = 1; i < headings.size(); ++i) fmt::print("  {:>{}}", text_of(i), widths[i]);
    fmt::print("\n");
  };
  print_line([&](std::size_t i) { return headings[i]; });
  nlohmann::ordered_json table{{"title", title}, {"rows", nlohmann::ordered_json::array()}};
  for (const auto& row : rows) {
    print_line([&](std::size_t i) { return row[i].text; });
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < headings.size(); ++i) object[headings[i]] = row[i].value;
    table["rows"].push_back(std::move(object));
  }
  json_["tables"].push_back(std::move(table));
}

void Report::note(const std::string& text) {
  begin();
  if (prints_) fmt::print("\n{}\n", text);
  json_["notes"].push_back(text);
}

void Report::timings(const std::string& name, std::span<const Timing> timings) {
  for (const Timing& t : timings) json_["rounds"][name].push_back(t.rounds);
}

}  // namespace lockstep::app
