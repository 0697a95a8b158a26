#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/eval_run.h"
#include "apps/lockstep/options/usage_error.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/utf8_text.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/onnx/export_onnx.h"
#include "lockstep/task/run.h"

namespace lockstep::app {
namespace {

struct ExportOptions {
  std::string run, file;
  bool pixels = false, logits = false;
};

Tensor row_of(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

int export_run(const ExportOptions& o) {
  const Run run = load_run(o.run, DType::f32);
  notice_best(o.run, run);
  const DataSchema& schema = run.schema();
  const bool classes = schema.task != lockstep::TaskKind::regression;
  const bool pictures = schema.input.size() == 3;
  const InputScale normal = schema.input_scale();
  if (o.pixels && !pictures) {
    throw UsageError(fmt::format("--pixels: only for pictures; this run takes {}", Shape(schema.input)));
  }
  if (const auto& a = schema.array; o.pixels && a && a->type && *a->type != ElementType::u8) {
    throw UsageError(
        fmt::format("--pixels: the pictures of this run have elements of {}, expected bytes", name(*a->type)));
  }
  if (o.logits && !classes) throw UsageError("--logits: only for classes; this run predicts numbers");
  std::vector<std::int64_t> answer;  // the shape of the output
  const auto forward = [&](std::span<const Tensor> in) {
    Tensor x = in[0];
    if (o.pixels) {
      x = permute(x.to(DType::f32), {0, 3, 1, 2});
      if (normal.divisor != 1) x = x / normal.divisor;
      if (!normal.mean.empty()) {
        const Shape channels{std::ssize(normal.mean), 1, 1};
        x = (x - row_of(normal.mean, channels)) / row_of(normal.stddev, channels);
      }
    }
    const Tensor outputs = run.model()(x);
    Tensor y = o.logits ? outputs : answers_of(outputs, schema);
    answer.assign(y.shape().begin(), y.shape().end());
    return std::vector{std::move(y)};
  };
  std::vector<std::int64_t> shape{2};
  if (o.pixels) {
    shape.insert(shape.end(), {schema.input[1], schema.input[2], schema.input[0]});
  } else {
    shape.insert(shape.end(), schema.input.begin(), schema.input.end());
  }
  const DType dtype = o.pixels ? DType::u8 : schema.task == lockstep::TaskKind::language ? DType::i64 : DType::f32;
  const Tensor example = zeros(Shape(shape), {.dtype = dtype});
  OnnxOptions options{.input_names = {o.pixels ? "pixels" : "input"},
                      .output_names = {!classes   ? "values"
                                       : o.logits ? "logits"
                                                  : "probabilities"}};
  const auto json = [](const auto& value) { return nlohmann::json(value).dump(); };
  if (classes) {
    std::vector<std::string> names;
    for (const std::string& name : schema.classes) names.push_back(utf8_text(name));
    options.metadata.emplace_back("classes", json(names));
  }
  if (!normal.mean.empty() || normal.divisor != 1) {
    options.metadata.emplace_back("divisor", json(normal.divisor));
    options.metadata.emplace_back("mean", json(normal.mean));
    options.metadata.emplace_back("stddev", json(normal.stddev));
  }
  options.metadata.emplace_back("model", run.description().model.name);
  options.metadata.emplace_back("schema", schema.json());
  export_onnx(o.file, run.model(), {example}, forward, options);
  print_out("{}: {} [batch, {}] -> {} [batch, {}]\n", o.file, options.input_names[0],
            fmt::join(shape.begin() + 1, shape.end(), ", "), options.output_names[0],
            fmt::join(answer.begin() + 1, answer.end(), ", "));
  return 0;
}

}  // namespace

Command add_export(CLI::App& parent) {
  auto* app = parent.add_subcommand("export", "Write the model of a run as an ONNX file");
  auto o = std::make_shared<ExportOptions>();
  app->add_option("--run", o->run, "The folder --save of the training run")->required()->type_name("DIR");
  app->add_option("FILE", o->file, "The file to write, such as model.onnx")->required();
  app->add_flag("--pixels", o->pixels,
                "Pictures: the input is bytes [N, height, width, channels], which the file normalizes, instead of "
                "normalized numbers [N, channels, height, width]");
  app->add_flag("--logits", o->logits, "Classes: the output is what the last layer computes, instead of probabilities");
  return [o] {
    check_single_process("export");
    return export_run(*o);
  };
}

}  // namespace lockstep::app
