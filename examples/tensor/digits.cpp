// SPDX-License-Identifier: Apache-2.0
// Trains a network with one hidden layer to read digits, without a model and without a trainer: only with
// arrays, tensors and operations. The gradients are written by hand. g++ compiles this source for the CPU,
// and nvcc compiles it for a GPU (digits.cu). The digits are images of 8x8 pixels that the program draws
// itself, each at a random position and with noise.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <random>
#include <vector>

#ifdef __CUDACC__
#include <tessera/cuda.cuh>
using Place = tessera::Cuda;
#else
#include <tessera/tessera.hpp>
using Place = tessera::Cpu;
#endif

namespace ts = tessera;

constexpr std::int64_t batch = 128, pixels = 64, hidden = 128;
constexpr std::int64_t classes = 10, columns = 16;  // the last 6 columns are padding, for aligned rows

/// The images (batch,pixels) and the labels (batch) of one batch, on the host.
struct Digits {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};

Digits draw(std::mt19937& random) {
  // Each digit has 7 rows of 5 pixels. Bit 4 of a row is its left pixel.
  constexpr unsigned char font[classes][7] = {{14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},
                                              {14, 17, 1, 2, 4, 8, 31},     {31, 2, 4, 2, 1, 17, 14},
                                              {2, 6, 10, 18, 31, 2, 2},     {31, 16, 30, 1, 1, 17, 14},
                                              {6, 8, 16, 30, 17, 17, 14},   {31, 1, 2, 4, 8, 8, 8},
                                              {14, 17, 17, 14, 17, 17, 14}, {14, 17, 17, 15, 1, 2, 12}};
  std::normal_distribution<float> noise(0.0f, 0.3f);
  Digits digits{std::vector<float>(static_cast<std::size_t>(batch * pixels)), {}};
  for (float& pixel : digits.images) pixel = noise(random);
  for (std::int64_t image = 0; image < batch; ++image) {
    auto const below = [&](unsigned count) { return static_cast<unsigned>(random()) % count; };
    unsigned const label = below(classes), left = below(4), top = below(2);
    digits.labels.push_back(static_cast<std::int32_t>(label));
    for (unsigned row = 0; row < 7; ++row)
      for (unsigned column = 0; column < 5; ++column)
        if (font[label][row] >> (4 - column) & 1)
          digits.images[static_cast<std::size_t>(image * pixels) + (top + row) * 8 + left + column] += 1.0f;
  }
  return digits;
}

/// Views of the parameters, or of their gradients, in one flat array.
struct Parameters {
  static constexpr std::int64_t count = pixels * hidden + hidden + hidden * columns + columns;
  ts::Tensor<float, Place> w1, b1, w2, b2;

  explicit Parameters(ts::Array<float, Place>& flat)
      : w1(flat.data(), {pixels, hidden}),
        b1(w1.data() + w1.elements(), {hidden}),
        w2(b1.data() + b1.elements(), {hidden, columns}),
        b2(w2.data() + w2.elements(), {columns}) {}
};

int main() try {
  std::mt19937 random(1);
  ts::OwningContext<Place> context;

  // Memory of the device. All values are zero at first.
  ts::Array<float, Place> weights({Parameters::count}), gradients({Parameters::count}), scale({1});
  ts::Array<float, Place> images({batch, pixels}), pre({batch, hidden}), activated({batch, hidden});
  ts::Array<float, Place> logits({batch, columns}), losses({batch}), d_pre({batch, hidden});
  ts::Array<float, Place> partials({ts::ops::partial_sums(Parameters::count)});
  ts::Array<std::int32_t, Place> labels({batch});
  ts::Array<double, Place> loss({1}), norm({1});
  ts::Array<std::int64_t, Place> valid({1});
  Parameters const value(weights), gradient(gradients);

  std::vector<float> initial(static_cast<std::size_t>(Parameters::count));
  std::normal_distribution<float> normal(0.0f, 0.1f);
  for (float& weight : initial) weight = normal(random);
  ts::ops::upload(context, initial, weights);
  ts::ops::fill(context, scale.view(), 1.0f / static_cast<float>(batch));  // the loss is a mean

  auto const forward = [&](Digits const& digits) {
    ts::ops::upload(context, digits.images, images);
    ts::ops::upload(context, digits.labels, labels);
    ts::ops::linear(context, images, value.w1, activated.view(),
                    {.bias = value.b1, .activation = ts::Activation::gelu, .pre = pre});
    ts::ops::linear(context, activated, value.w2, logits.view(), {.bias = value.b2});
  };

  double first = 0.0, last = 0.0;
  for (int step = 1; step <= 600; ++step) {
    forward(draw(random));

    // The gradient of the logits replaces the logits.
    ts::ops::cross_entropy(context, logits.view(), classes, labels, losses, true, scale.data());
    ts::ops::linear_backward_weight(context, activated.view(), logits, gradient.w2, {.dbias = gradient.b2});
    ts::ops::linear_backward_input(context, logits, value.w2, d_pre.view(),
                                   {.activation = ts::Activation::gelu, .pre = pre});
    ts::ops::linear_backward_weight(context, images.view(), d_pre, gradient.w1, {.dbias = gradient.b1});
    ts::ops::axpy(context, -0.5f, gradients, weights.view());  // weights -= 0.5 gradients

    if (step != 1 && step % 100 != 0) continue;
    ts::ops::sum_losses(context, losses.view(), labels, loss.data(), valid.data());
    ts::ops::norm(context, gradients.view(), partials, norm);
    last = ts::ops::download(context, loss).front() / batch;  // waits for the operations above
    if (step == 1) first = last;
    std::cout << Place::name << " step " << step << ", loss " << last << ", gradient norm "
              << ts::ops::download(context, norm).front() << '\n';
  }

  int right = 0;
  constexpr int tests = 8;
  for (int test = 0; test < tests; ++test) {
    Digits const digits = draw(random);
    forward(digits);
    std::vector<float> const scores = ts::ops::download(context, logits);
    for (std::int64_t image = 0; image < batch; ++image) {
      auto const row = scores.begin() + image * columns;
      right += std::max_element(row, row + classes) - row == digits.labels[static_cast<std::size_t>(image)];
    }
  }
  double const accuracy = static_cast<double>(right) / static_cast<double>(tests * batch);
  std::cout << "accuracy on " << tests * batch << " new digits: " << accuracy << '\n';
  return last < 0.1 * first && accuracy > 0.95 ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
