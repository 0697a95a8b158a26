// Internal: the page of a training run: one HTML file without outside references, for a screen, a phone, and paper.
// Only hovering over curves needs its script.
//
// These are plain functions from numbers and texts to HTML. PageTexts may hold any bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/nn/summary.h"
#include "lockstep/train/plot.h"

namespace lockstep {

using PageTexts = std::vector<std::pair<std::string, std::string>>;  // names and values

// One step, or the means over several steps in a row.
struct PageStep {
  std::int64_t step = 0;  // the last of these steps
  std::int64_t epoch = 0;
  std::int64_t count = 1;
  double loss = 0, learning_rate = 0, images_per_second = 0;
};

// Merges `more`, the steps that follow, into `sum`: each value becomes the mean over both.
void add_step(PageStep& sum, const PageStep& more);

// Results on the test examples.
struct PageResults {
  std::int64_t examples = 0, of = 0;  // the first `examples` of `of`
  double seconds = 0;
  bool averaged = false;  // of the average of the weights, instead of the weights
  // Row i, column j: number of examples of class i of which the model said j.
  std::vector<std::vector<double>> confusion{};
  std::vector<std::string> classes{};  // may be fewer than the rows
  struct Scatter {
    std::string name;
    std::vector<CurvePoint> points{};  // x: the target, y: the prediction
  };
  std::vector<Scatter> scatters{};
  struct Example {
    std::string name;              // "example 17", or a file
    double loss = 0;               // or the error
    std::string truth, predicted;  // classes or numbers; `predicted` is empty if the class is right
    double probability = 0;        // of the class that the model said
    std::string picture{};         // a data: URI
    bool small_picture = false;    // its pixels are shown as squares
    PageTexts inputs{};            // the cells of a row
    std::vector<std::pair<std::string, double>> characters{};  // of a text, and their losses
  };
  std::vector<Example> worst{};
};

struct PageTimeline {
  std::string what;  // "steps 4 to 23 of rank 0"
  double seconds = 0;
  std::optional<double> hidden_communication{};
  double communication = 0, exposed = 0;  // shares of the time
  struct Span {
    double begin = 0, end = 0;  // 0 to 1 within the picture
    int color = 0;              // 0 forward, 1 backward, 2 update, 3 copies and others, 4 communication
  };
  struct Lane {
    std::string name;  // "cpu:0 compute 0"
    double busy = 0;   // share of the time
    std::int64_t tasks = 0;
    std::vector<Span> spans{};
  };
  std::vector<Lane> lanes{};
  double picture_seconds = 0;  // the time that the spans cover
  struct Operation {
    std::string name;
    std::int64_t count = 0;
    double seconds = 0;
  };
  std::vector<Operation> operations{};
};

struct ReportPage {
  std::string title, status;
  bool good = true;      // false: the status is a failure
  PageTexts headline{};  // a few large numbers
  std::vector<PageStep> steps{};
  // Curves of metrics and losses by epoch.
  std::vector<PlotPanel> panels{};
  std::vector<EpochReport> epochs{};
  std::int64_t planned_epochs = 0;
  std::int64_t best_epoch = 0;  // 0: none
  std::optional<PageResults> results{};
  std::optional<PageTimeline> timeline{};
  std::vector<LayerSummary> layers{};
  PageTexts recipe{}, hashes{}, machine{};
  std::string command{};
  // JSON that read_page_data() finds, for the page of a run that continues this one.
  std::string data{};
};

std::string report_html(const ReportPage& page);
// Returns ReportPage::data of a page; empty if it has none.
std::string read_page_data(const std::string& html);

// data:image/png;base64,...
std::string data_uri(std::string_view media_type, std::string_view bytes);

}  // namespace lockstep
