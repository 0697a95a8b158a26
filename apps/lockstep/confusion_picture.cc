#include "apps/lockstep/confusion_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/train/markup.h"

namespace lockstep::app {

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
