// A multilayer perceptron for tables: embeddings for categories, beside numbers.
//
//   TableMlp net({.numbers = 4, .classes = 3});
//   Tensor logits = net(x);  // f32 [N, 4] -> [N, 3]
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/embedding.h"
#include "lockstep/nn/module_list.h"
#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

struct TableMlpOptions {
  // The first features of a row.
  std::int64_t numbers = 0;
  // The number of values of each category, which follow the numbers in a row. Value 0 is a missing one.
  std::vector<std::int64_t> vocabularies{};
  // For each category, whether training data miss cells. Where they do not, value 0 is zeros. Empty: all do.
  std::vector<bool> missing{};
  // The outputs: classes, or numbers to predict.
  std::int64_t classes = 0;
  std::vector<std::int64_t> hidden{256, 128};
  double dropout = 0;
};

// Rows [N, numbers + categories] -> [N, classes]. Each category has an embedding of min(32, (values + 1) / 2) elements;
// these and the numbers go through linear layers with ReLU. Parameters are named embeddings.0.weight, mlp.0.weight,
// .... In bf16 and f16, category numbers beyond 256 and 2048 are not exact: forward() throws if a vocabulary is larger.
class TableMlp : public Module {
 public:
  using Options = TableMlpOptions;
  explicit TableMlp(TableMlpOptions options);
  Tensor forward(const Tensor& x) override;

 private:
  TableMlpOptions options_;
  ModuleList<Embedding> embeddings_;
  Sequential mlp_;
};

}  // namespace lockstep
