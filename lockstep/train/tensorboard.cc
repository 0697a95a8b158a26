#include "lockstep/train/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image.h"
#include "lockstep/nn/summary.h"
#include "lockstep/train/event_file.h"
#include "lockstep/train/markup.h"
#include "lockstep/train/model_graph.h"

namespace lockstep {
namespace {

using protozero::pbf_writer;

// The fields of TensorFlow's messages event.proto, summary.proto, tensor.proto, graph.proto, node_def.proto, and
// attr_value.proto.
namespace event_field {
constexpr protozero::pbf_tag_type kWallTime = 1, kStep = 2, kFileVersion = 3, kGraph = 4, kSummary = 5, kSessionLog = 7;
}
namespace summary_field {
constexpr protozero::pbf_tag_type kValue = 1;  // in Summary; the fields below are of Summary.Value
constexpr protozero::pbf_tag_type kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9;
}  // namespace summary_field
namespace histogram_field {
constexpr protozero::pbf_tag_type kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSumOfSquares = 5, kLimits = 6,
                                  kBuckets = 7;
}
namespace node_field {
constexpr protozero::pbf_tag_type kNode = 1, kVersions = 4;  // in GraphDef; the fields below are of NodeDef
constexpr protozero::pbf_tag_type kName = 1, kOp = 2, kInput = 3, kAttribute = 5;
}  // namespace node_field
namespace attribute_field {
constexpr protozero::pbf_tag_type kList = 1, kString = 2, kShapes = 7;
}
constexpr int kStringType = 7;    // DT_STRING
constexpr int kSessionStart = 1;  // SessionLog.START

// TensorFlow's limits: 0, and 1e-12 times powers of 1.1, up to 1e20, with both signs.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    std::vector<double> all{-std::numeric_limits<double>::max()};
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::filesystem::path new_file_in(const std::filesystem::path& folder, double time) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  check(!failed, "cannot create the folder {}: {}", folder.string(), failed.message());
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {'h', 'o', 's', 't'};
  static std::atomic<int> files{0};  // number of files of this process
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(time), host.data(),
                              ::getpid(), files.fetch_add(1));
}

// Returns a picture as u8.
Tensor as_bytes(std::string_view tag, const Tensor& image) {
  check(image.defined() && image.shape().dim() == 3 && (image.size(0) == 1 || image.size(0) == 3) && image.numel() > 0,
        "tensorboard: {}: {}, expected a picture [1 or 3, height, width]", tag,
        image.defined() ? image.describe() : "an undefined tensor");
  if (image.dtype() == DType::u8) return image.to_host();
  check(is_floating(image.dtype()), "tensorboard: {}: a picture of {}, expected u8 or floating numbers", tag,
        name(image.dtype()));
  std::vector<std::uint8_t> bytes;
  for (const float value : image.to_host().to(DType::f32).to_vector<float>()) {
    check(!std::isnan(value), "tensorboard: {}: a pixel is NaN", tag);
    bytes.push_back(static_cast<std::uint8_t>(std::clamp(255.0F * value, 0.0F, 255.0F)));
  }
  return Tensor::from(bytes, image.shape());
}

// Adds an entry to NodeDef's map of attributes. fill(value) writes the AttrValue.
template <typename F>
void add_attribute(pbf_writer& node, const char* name, const F& fill) {
  pbf_writer entry(node, node_field::kAttribute);
  entry.add_string(1, name);
  pbf_writer value(entry, 2);
  fill(value);
}

std::string graph_message(const std::vector<ModelNode>& nodes) {
  std::string message;
  pbf_writer graph(message);
  for (const ModelNode& n : nodes) {
    pbf_writer node(graph, node_field::kNode);
    node.add_string(node_field::kName, n.name);
    node.add_string(node_field::kOp, valid_utf8(n.op));
    for (const std::string& input : n.inputs) node.add_string(node_field::kInput, input);
    if (!n.module.empty()) {
      add_attribute(node, "module", [&](pbf_writer& value) { value.add_bytes(attribute_field::kString, n.module); });
    }
    add_attribute(node, "_output_shapes", [&](pbf_writer& value) {
      pbf_writer list(value, attribute_field::kList);
      for (const Shape& shape : n.outputs) {
        pbf_writer sizes(list, attribute_field::kShapes);
        for (int i = 0; i < shape.dim(); ++i) {
          pbf_writer size(sizes, 2);
          size.add_int64(1, shape[i]);
        }
      }
    });
  }
  pbf_writer versions(graph, node_field::kVersions);
  versions.add_int32(1, 22);  // the producer version that PyTorch's writer has
  return message;
}

}  // namespace

struct TensorBoardWriter::Impl {
  Impl(const std::filesystem::path& folder, TensorBoardOptions o)
      : options(o), file(new_file_in(folder, o.wall_time > 0 ? o.wall_time : now())) {
    write([](pbf_writer& e) { e.add_string(event_field::kFileVersion, "brain.Event:2"); });
    if (!options.purge_step) return;
    write([&](pbf_writer& e) {
      e.add_int64(event_field::kStep, *options.purge_step);
      pbf_writer session(e, event_field::kSessionLog);
      session.add_enum(1, kSessionStart);
    });
  }

  // fill(event) adds everything but the time.
  template <typename F>
  void write(const F& fill) {
    std::string record;
    pbf_writer message(record);
    message.add_double(event_field::kWallTime, options.wall_time > 0 ? options.wall_time : now());
    fill(message);
    file.write(record);
  }

  // fill(value) adds everything but the tag.
  template <typename F>
  void write_value(std::string_view tag, std::int64_t step, const F& fill) {
    check(!tag.empty(), "tensorboard: an empty tag, expected a name such as train/loss");
    check(step >= 0, "tensorboard: {}: step {}, expected 0 or more", tag, step);
    write([&](pbf_writer& e) {
      e.add_int64(event_field::kStep, step);
      pbf_writer values(e, event_field::kSummary);
      pbf_writer value(values, summary_field::kValue);
      value.add_string(summary_field::kTag, valid_utf8(tag));
      fill(value);
    });
  }

  TensorBoardOptions options;
  EventFile file;
};

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, TensorBoardOptions options)
    : impl_(std::make_unique<Impl>(folder, options)) {}
TensorBoardWriter::~TensorBoardWriter() = default;
TensorBoardWriter::TensorBoardWriter(TensorBoardWriter&&) noexcept = default;
TensorBoardWriter& TensorBoardWriter::operator=(TensorBoardWriter&&) noexcept = default;

const std::filesystem::path& TensorBoardWriter::path() const { return impl_->file.path(); }

void TensorBoardWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  impl_->write_value(tag, step,
                     [&](pbf_writer& v) { v.add_float(summary_field::kSimpleValue, static_cast<float>(value)); });
}

void TensorBoardWriter::add_histogram(std::string_view tag, const Tensor& values, std::int64_t step) {
  check(values.defined() && values.numel() > 0, "tensorboard: {}: no values for a histogram", tag);
  const std::vector<double> all = values.to_host().to(DType::f64).to_vector<double>();
  const std::vector<double>& limits = bucket_limits();
  std::vector<double> counts(limits.size());
  double sum = 0, sum_of_squares = 0;
  for (const double x : all) {
    check(std::isfinite(x), "tensorboard: {}: a value is {}, expected finite values", tag, x);
    // Bucket i has the values in [limit i-1, limit i).
    const auto bucket = static_cast<std::size_t>(std::ranges::upper_bound(limits, x) - limits.begin());
    ++counts[std::min(bucket, counts.size() - 1)];
    sum += x;
    sum_of_squares += x * x;
  }
  // Leaves out empty buckets at both ends.
  auto first = static_cast<std::size_t>(std::ranges::find_if(counts, [](double n) { return n > 0; }) - counts.begin());
  std::size_t last = counts.size();
  while (counts[last - 1] == 0) --last;
  first -= first > 0 ? 1 : 0;  // gives the first bucket its lower limit
  const auto [least, most] = std::ranges::minmax(all);
  impl_->write_value(tag, step, [&](pbf_writer& v) {
    pbf_writer h(v, summary_field::kHistogram);
    h.add_double(histogram_field::kMin, least);
    h.add_double(histogram_field::kMax, most);
    h.add_double(histogram_field::kCount, static_cast<double>(all.size()));
    h.add_double(histogram_field::kSum, sum);
    h.add_double(histogram_field::kSumOfSquares, sum_of_squares);
    h.add_packed_double(histogram_field::kLimits, limits.begin() + static_cast<std::ptrdiff_t>(first),
                        limits.begin() + static_cast<std::ptrdiff_t>(last));
    h.add_packed_double(histogram_field::kBuckets, counts.begin() + static_cast<std::ptrdiff_t>(first),
                        counts.begin() + static_cast<std::ptrdiff_t>(last));
  });
}

void TensorBoardWriter::add_image(std::string_view tag, const Tensor& image, std::int64_t step) {
  const Tensor bytes = as_bytes(tag, image);
  const std::string png = encode_png(bytes);
  impl_->write_value(tag, step, [&](pbf_writer& v) {
    pbf_writer picture(v, summary_field::kImage);
    picture.add_int32(1, static_cast<std::int32_t>(bytes.size(1)));
    picture.add_int32(2, static_cast<std::int32_t>(bytes.size(2)));
    picture.add_int32(3, static_cast<std::int32_t>(bytes.size(0)));  // 1: gray, 3: red, green, blue
    picture.add_bytes(4, png);
  });
}

void TensorBoardWriter::add_graph(Module& model, const Tensor& input) {
  check(input.defined(), "tensorboard: add_graph: the input is undefined");
  const Tensor x = input_for(model, input);
  const std::string message = graph_message(trace_model(model, {&x, 1}, [&] { model(x); }));
  impl_->write([&](pbf_writer& e) { e.add_bytes(event_field::kGraph, message); });
}

void TensorBoardWriter::add_plugin_data(std::string_view tag, std::string_view plugin, std::string_view content) {
  impl_->write_value(tag, 0, [&](pbf_writer& v) {
    pbf_writer metadata(v, summary_field::kMetadata);
    pbf_writer data(metadata, 1);
    data.add_string(1, valid_utf8(plugin));
    data.add_bytes(2, content.data(), content.size());
  });
}

void TensorBoardWriter::set_wall_time(double seconds) { impl_->options.wall_time = seconds; }

void TensorBoardWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  impl_->write_value(tag, step, [&](pbf_writer& v) {
    {
      pbf_writer metadata(v, summary_field::kMetadata);
      pbf_writer plugin(metadata, 1);
      plugin.add_string(1, "text");
    }
    pbf_writer tensor(v, summary_field::kTensor);
    tensor.add_enum(1, kStringType);
    {
      pbf_writer shape(tensor, 2);
      pbf_writer dim(shape, 2);
      dim.add_int64(1, 1);
    }
    tensor.add_bytes(8, valid_utf8(text));
  });
}

}  // namespace lockstep
