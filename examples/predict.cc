// Says what a test image of Fashion-MNIST shows, by the weights of a LeNet that the tool trained.
//
//   lockstep train --model lenet --export lenet.safetensors
//   predict lenet.safetensors 7
#include <fmt/core.h>
#include <lockstep/autograd/functions.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/models/lenet.h>
#include <lockstep/train/predictor.h>

#include <algorithm>
#include <charconv>
#include <string_view>

using namespace lockstep;

int main(int argc, char** argv) try {
  if (argc != 3) {
    fmt::print(stderr,
               "predict: expected a file of weights and the number of an image, as in predict lenet.safetensors 7\n");
    return 2;
  }
  const std::string_view text = argv[2];
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    fmt::print(stderr, "predict: found '{}', expected the number of an image\n", text);
    return 2;
  }

  const Predictor predict(lenet(), argv[1]);  // any number of threads may call it
  const Example example = FashionMnist(load_fashion_mnist(MnistPart::test)).get(number);
  const std::vector<float> probabilities = softmax(predict(unsqueeze(example[0], 0))).to_vector<float>();
  const auto best = std::ranges::max_element(probabilities);
  fmt::print("image {}: {}, with probability {:.3f}; the label is {}\n", number,
             kFashionMnistClasses.at(static_cast<std::size_t>(best - probabilities.begin())), *best,
             kFashionMnistClasses.at(static_cast<std::size_t>(example[1].item<std::int64_t>())));
} catch (const std::exception& error) {
  fmt::print(stderr, "predict: {}\n", error.what());
  return 1;
}
