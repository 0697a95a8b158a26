// The layers of PRINTED in tests/parity/layers_reference.py.
#include "lockstep/nn/activations.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_dict.h"
#include "lockstep/nn/padding.h"
#include "lockstep/nn/parameter_list.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/sequential.h"
#include "tests/models/layer_case.h"

namespace lockstep::testing {
namespace {

// The output of each layer, for the same input.
template <typename... Layers>
LayerCase each(Layers&&... layers) {
  LayerCase made = make_case<Sequential>([](Sequential& net, const CaseTensors& in) {
    CaseTensors outputs;
    for (std::size_t i = 0; i < net.size(); ++i) outputs.push_back(net[i](in[0] * 4.0));
    return outputs;
  });
  auto& net = static_cast<Sequential&>(*made.module);
  (net.append(std::forward<Layers>(layers)), ...);
  return made;
}

// Parameters in containers.
struct Params : Module {
  ParameterList& rows = make<ParameterList>("rows");
  ParameterDict& more = make<ParameterDict>("more");
  ModuleDict<> layers;
  Params() {
    rows.append({.shape = {3}});
    rows.append({.shape = {2, 3}});
    more.append("left", {.shape = {3}});
    layers.append<Linear>("a", {.in_features = 3, .out_features = 3});
    layers.append("act", Tanh());
    layers.append("b", std::make_shared<Linear>(LinearOptions{.in_features = 3, .out_features = 2}));
    add("layers", layers);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = layers["act"](layers["a"](x * rows[0] + more["left"]));
    return layers["b"](y + rows[1]);
  }
};

using Makers = std::map<std::string, std::function<LayerCase()>>;

Makers activations() {
  return {
      {"gates and their limits",
       [] {
         return each(GLU(), GLU(1), Hardtanh(), Hardtanh(-2, 0.5), ReLU6(), Hardsigmoid(), Hardswish(), Hardshrink(),
                     Softshrink(1.5), Threshold(0.5, -20));
       }},
      {"curves",
       [] { return each(SELU(), CELU(), CELU(0.5), Mish(), LogSigmoid(), Softsign(), Softmin(), Tanhshrink()); }},
      {"prelu", [] { return each(PReLU(), PReLU({.num_parameters = 4})); }},
  };
}

Makers windows() {
  const ConvLayerOptions wide{.in_channels = 2, .out_channels = 3, .kernel_size = 3};
  const Conv1dLayerOptions longer{.in_channels = 2, .out_channels = 3, .kernel_size = 4, .padding = kSame};
  const auto with = [](auto options, auto change) {
    change(options);
    return options;
  };
  return {
      {"paddings of sequences",
       [] {
         return each(ReflectionPad1d(2), ReflectionPad1d({0, 3}), ReplicationPad1d({5, 1}), ConstantPad1d({1, 2}, 3.5));
       }},
      {"paddings of images",
       [] {
         return each(ReflectionPad2d(1), ReflectionPad2d({1, 2, 0, 3}), ReplicationPad2d({2, 0, 1, 5}), ZeroPad2d(2),
                     ZeroPad2d({0, 1, 2, -1}), ConstantPad2d({1, 2, 0, 1}, -2));
       }},
      {"paddings of an image", [] { return each(ReflectionPad2d(1), ZeroPad2d(1)); }},
      {"convolutions of one size",
       [=] {
         return each(Conv2d(with(wide, [](auto& o) { o.padding = kSame; })),
                     Conv2d({.in_channels = 2,
                             .out_channels = 3,
                             .kernel_size = {2, 4},
                             .padding = kSame,
                             .dilation = {3, 1},
                             .bias = false}),
                     Conv2d({.in_channels = 2,
                             .out_channels = 3,
                             .kernel_size = {4, 3},
                             .padding = kSame,
                             .padding_mode = PadMode::reflect}));
       }},
      {"convolutions of sequences of one size",
       [=] { return each(Conv1d(longer), Conv1d(with(longer, [](auto& o) { o.padding_mode = PadMode::circular; }))); }},
      {"convolutions with padding",
       [=] {
         return each(
             Conv2d(with(wide, [](auto& o) { o.stride = 2, o.padding = {1, 2}, o.padding_mode = PadMode::reflect; })),
             Conv2d(with(wide, [](auto& o) { o.padding = 2, o.padding_mode = PadMode::circular; })),
             Conv2d(with(wide, [](auto& o) { o.padding = 3, o.padding_mode = PadMode::replicate; })), Conv2d(wide));
       }},
      {"convolutions of one image",
       [=] {
         return each(Conv2d(wide),
                     ConvTranspose2d({.in_channels = 2, .out_channels = 3, .kernel_size = 3, .stride = 2}),
                     MaxPool2d(), AvgPool2d(), AdaptiveAvgPool2d(2),
                     Conv2d(with(wide, [](auto& o) { o.padding = 1, o.padding_mode = PadMode::reflect; })));
       }},
      {"convolutions of one sequence",
       [=] {
         return each(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3}),
                     ConvTranspose1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3, .stride = 2}), MaxPool1d(),
                     AvgPool1d(), AdaptiveAvgPool1d(2));
       }},
      {"transposed convolutions of sequences",
       [] {
         return each(ConvTranspose1d({.in_channels = 4,
                                      .out_channels = 6,
                                      .kernel_size = 3,
                                      .stride = 2,
                                      .padding = 1,
                                      .output_padding = 1,
                                      .groups = 2}),
                     ConvTranspose1d({.in_channels = 4,
                                      .out_channels = 2,
                                      .kernel_size = 2,
                                      .stride = 3,
                                      .bias = false,
                                      .dilation = 2}));
       }},
      {"dilated max pooling",
       [] {
         return each(
             MaxPool2d({.kernel_size = 2, .stride = 1, .dilation = 2}),
             MaxPool2d({.kernel_size = {2, 3}, .stride = 2, .padding = 1, .dilation = {1, 2}}),
             MaxPool2d({.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true, .dilation = 2}));
       }},
      {"dilated max pooling of sequences",
       [] { return each(MaxPool1d({.kernel_size = 3, .stride = 2, .padding = 1, .dilation = 2})); }},
      {"adaptive pooling",
       [] { return each(AdaptiveMaxPool2d({2, 3}), AdaptiveMaxPool2d(3), AdaptiveMaxPool2d(1)); }},
      {"adaptive pooling of sequences",
       [] { return each(AdaptiveMaxPool1d(3), AdaptiveMaxPool1d(4), AdaptiveAvgPool1d(3), AdaptiveAvgPool1d(1)); }},
  };
}

}  // namespace

Makers printed_layers() {
  Makers all{{"containers", [] { return of_one<Params>(); }}};
  for (Makers part : {activations(), windows()}) all.merge(part);
  return all;
}

}  // namespace lockstep::testing
