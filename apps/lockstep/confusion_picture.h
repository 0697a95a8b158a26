// A confusion matrix as a picture.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

// SVG. Row i, column j: how many examples of class i were taken for class j; darker is a larger share of the row.
std::string confusion_svg(const std::vector<std::vector<double>>& table, const std::vector<std::string>& names);

}  // namespace lockstep::app
