// C++ models of lockstep.models. Those of torchvision are in lockstep/models.py.
#include "layers.h"

namespace lockstep::python {

void add_models(py::module_& core) {
  py::module_ m = core.def_submodule("_models", "Models of the library.");
  m.def(
      "make_model",
      [](const std::string& name, std::int64_t classes) {
        return std::shared_ptr<Sequential>(make_model(name, classes));
      },
      "name"_a, "classes"_a = 10, "The model of this name that the tool trains: \"lenet\", \"mlp\", \"resnet18\".");
  m.def("model_names", &model_names, "The names for make_model().");
  m.def(
      "lenet", [](std::int64_t classes) { return std::shared_ptr<Sequential>(lenet(classes)); }, "classes"_a = 10,
      "LeNet-5 with ReLU and max pools, [N, C, H, W] -> [N, classes].");
  m.def(
      "mlp",
      [](std::int64_t classes, const std::vector<std::int64_t>& hidden) {
        return std::shared_ptr<Sequential>(mlp(classes, hidden));
      },
      "classes"_a = 10, "hidden"_a = std::vector<std::int64_t>{256},
      "Hidden layers with ReLU on the flattened picture, [N, C, H, W] -> [N, classes].");

  ModuleClass<GPT> gpt(m, "GPT", "A language model like GPT-2, int64 [N, T] -> logits [N, T, vocab_size].");
  def_constructor(
      gpt,
      [](std::int64_t vocab_size, std::int64_t block_size, std::int64_t n_layer, std::int64_t n_head,
         std::int64_t n_embd, double dropout, bool tie_weights) {
        return GPTOptions{.vocab_size = vocab_size,
                          .block_size = block_size,
                          .n_layer = n_layer,
                          .n_head = n_head,
                          .n_embd = n_embd,
                          .dropout = dropout,
                          .tie_weights = tie_weights};
      },
      "vocab_size"_a, "block_size"_a = 128, "n_layer"_a = 4, "n_head"_a = 4, "n_embd"_a = 128, "dropout"_a = 0.1,
      "tie_weights"_a = false);
  gpt.def(
      "generate",
      [](GPT& self, std::vector<std::int64_t> ids, std::int64_t new_tokens, double temperature, std::int64_t top_k,
         std::optional<std::uint64_t> seed, bool use_cache) {
        return self.generate(std::move(ids), {.new_tokens = new_tokens,
                                              .temperature = temperature,
                                              .top_k = top_k,
                                              .seed = seed,
                                              .use_cache = use_cache});
      },
      "ids"_a, "new_tokens"_a = 100, "temperature"_a = 1.0, "top_k"_a = 0, "seed"_a = py::none(), "use_cache"_a = true,
      released(),
      "Continues a list of tokens; returns all of them. use_cache=False computes all tokens in every pass.");
}

}  // namespace lockstep::python
