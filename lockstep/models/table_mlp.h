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
  // Number of numeric features, which come first in a row.
  std::int64_t numbers = 0;
  // Number of values of each category. Categories follow the numbers in a row. Value 0 stands for a missing cell.
  std::vector<std::int64_t> vocabularies{};
  // For each category, whether its training data have missing cells. If not, value 0 embeds as zeros. Empty: all have.
  std::vector<bool> missing{};
  // Number of outputs: classes, or numbers to predict.
  std::int64_t classes = 0;
  std::vector<std::int64_t> hidden{256, 128};
  double dropout = 0;
};

// Maps rows [N, numbers + categories] to [N, classes]. Each category has an embedding of min(32, (values + 1) / 2)
// elements; embeddings and numbers go through linear layers with ReLU. Parameters are named embeddings.0.weight,
// mlp.0.weight, .... bf16 and f16 represent categories exactly to 256 and 2048: forward() throws for larger ones.
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
