#include "apps/lockstep/confusion_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "lockstep/train/markup.h"

namespace lockstep::app {

std::string confusion_text(const std::string& name, const std::vector<std::vector<double>>& table,
                           const std::vector<std::string>& class_names) {
  struct Pair {
    std::size_t label, predicted;
  };
  const auto count = [&](const Pair& p) { return table[p.label][p.predicted]; };
  const auto class_name = [&](std::size_t c) {
    const std::string number = std::to_string(c);
    return c < class_names.size() && class_names[c] != number ? number + " " + class_names[c] : number;
  };
  double largest = 0;
  std::vector<std::size_t> classes;  // classes that occur
  std::vector<Pair> confused;
  for (std::size_t i = 0; i < table.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < table.size(); ++j) {
      sum += table[i][j] + table[j][i];
      largest = std::max(largest, table[i][j]);
      if (i != j && table[i][j] > 0) confused.push_back({i, j});
    }
    if (sum > 0) classes.push_back(i);
  }
  const std::string corner = "label \\ predicted";
  std::size_t head = corner.size();
  for (const std::size_t c : classes) head = std::max(head, class_name(c).size());
  const std::size_t width =
      std::max(fmt::formatted_size("{:.0f}", largest), fmt::formatted_size("{}", table.size())) + 1;
  std::string text = fmt::format("{}:\n{:<{}}", name, corner, head);
  for (const std::size_t c : classes) text += fmt::format("{:>{}}", c, width);
  text += '\n';
  for (const std::size_t label : classes) {
    text += fmt::format("{:<{}}", class_name(label), head);
    for (const std::size_t predicted : classes) text += fmt::format("{:>{}.0f}", table[label][predicted], width);
    text += '\n';
  }
  std::ranges::stable_sort(confused, std::greater<>(), count);
  constexpr std::size_t kMostPairs = 3;
  confused.resize(std::min(confused.size(), kMostPairs));
  if (confused.empty()) return text;
  text += "most often confused:";
  for (const Pair& p : confused) {
    text += fmt::format("{} {} as {} ({:.0f} of {:.0f})", &p == confused.data() ? "" : ",", class_name(p.label),
                        class_name(p.predicted), count(p), std::reduce(table[p.label].begin(), table[p.label].end()));
  }
  return text + '\n';
}

std::string confusion_svg(const std::vector<std::vector<double>>& table, const std::vector<std::string>& names) {
  constexpr std::size_t kLetter = 8, kGap = 12, kTop = 46;
  const std::size_t classes = table.size();
  const std::size_t cell = classes <= 12 ? 48 : 28;
  std::size_t longest = 5;
  for (const std::string& name : names) longest = std::max(longest, std::min<std::size_t>(name.size(), 24));
  const std::size_t left = longest * kLetter + 2 * kGap, top = kTop + longest * kLetter;
  const std::size_t width = std::max<std::size_t>(460, left + classes * cell + kGap + longest * kLetter),
                    height = top + classes * cell + kGap;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">Confusion matrix: rows are labels, columns predictions</text>\n",
      width, height, kGap);
  for (std::size_t i = 0; i < classes; ++i) {
    const std::string name = escape_markup(i < names.size() ? names[i] : fmt::format("{}", i));
    const std::size_t middle = i * cell + cell / 2;
    svg +=
        fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left - kGap / 2, top + middle + 5, name);
    svg += fmt::format("<text transform=\"translate({} {}) rotate(-45)\">{}</text>\n", left + middle, top - 6, name);
    const double sum = std::reduce(table[i].begin(), table[i].end());
    for (std::size_t j = 0; j < classes; ++j) {
      const double share = sum > 0 ? table[i][j] / sum : 0;
      svg += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#2166ac\" fill-opacity=\"{:.3f}\" "
          "stroke=\"#ddd\"/>\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{:.0f}</text>\n",
          left + j * cell, top + i * cell, cell, cell, share, left + j * cell + cell / 2, top + middle + 5,
          share > 0.55 ? "#fff" : "#222", table[i][j]);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::app
