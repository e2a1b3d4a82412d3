// Local training of stacks of linear layers, in one thread: all steps of some clients, from their start to their end.
//
// Between a client's first and last step, weights lie in blocks of columns (outputs), row (input) after row, so that every
// product runs along registers. The gradient of weights is never written: it is summed in registers, and W takes the step,
// W -= lr dY'X, as soon as the sum is there. With momentum, weight decay, a pull to the start or a given direction, the sum
// begins with those.
//
// Penalties on the features, which are the last layer's inputs, and on that layer's weights are added to the gradients.
//
// A client's sums run over its own examples in their own order: who else is trained in the same call changes nothing.

#include "stack.h"

#include <vector>

using namespace stack;

namespace {

// The sine and the cosine, to two units in the last place of 1.
inline void sine_and_cosine(Lanes x, Lanes& sine, Lanes& cosine) {
  const Lanes magic = all(12582912.0f), shifted = fused(0.636619772f, x, magic), n = shifted - magic;
  const Lanes once = fused(-1.5703125f, n, x), twice = fused(-4.837512969970703125e-4f, n, once);
  const Lanes r = fused(-7.549789948768648e-8f, n, twice), s = r * r;
  const Lanes third = fused(fused(all(-1.9515295891e-4f), s, 8.3321608736e-3f), s, -1.6666654611e-1f);
  const Lanes fourth = fused(fused(all(2.443315711809948e-5f), s, -1.388731625493765e-3f), s, 4.166664568298827e-2f);
  const Lanes odd = fused(r * s, third, r), even = fused(s * s, fourth, fused(-0.5f, s, all(1.0f)));
  const Bits quarter = (Bits)shifted;
  const Bits swapped = (quarter & 1) != 0, down = (quarter & 2) != 0, left = ((quarter + 1) & 2) != 0;
  const Lanes first = swapped ? even : odd, second = swapped ? odd : even;
  sine = down ? -first : first;
  cosine = left ? -second : second;
  const Bits near = (x < all(8192.0f)) & (x > all(-8192.0f));
  int64_t each[V / 2], together = -1;
  std::memcpy(each, &near, sizeof each);
  for (int64_t l = 0; l < V / 2; l++) together &= each[l];
  if (together == -1) return;
  for (int64_t l = 0; l < V; l++)  // also what is no number
    if (!near[l]) sine[l] = __builtin_sinf(x[l]), cosine[l] = __builtin_cosf(x[l]);
}

// Between a client's vector, rows of weights one output each, and blocks.
template <typename Move>
void each_weight(const Layer& layer, Move move) {
  for (int64_t j = 0; j < layer.outputs; j += WIDE) {
    const int64_t wide = least(layer.padded - j, WIDE), count = least(layer.outputs - j, WIDE);
    for (int64_t q = 0; q < layer.inputs; q += 16)
      for (int64_t l = 0; l < count; l++)
        for (int64_t p = q; p < least(layer.inputs, q + 16); p++)
          move(layer.weight + (j + l) * layer.inputs + p, layer.rows + j * layer.inputs + p * wide + l);
  }
  if (layer.bias >= 0)
    for (int64_t j = 0; j < layer.outputs; j++) move(layer.bias + j, layer.offsets + j);
}

// What fills up registers becomes 0: a client's NaN may have got there, and must not reach the next client.
void pack(const std::vector<Layer>& layers, const float* vector, std::vector<float>& blocks) {
  blocks.assign(blocks.size(), 0.0f);
  for (const Layer& layer : layers)
    each_weight(layer, [&](int64_t there, int64_t here) { blocks[here] = vector[there]; });
}

void unpack(const std::vector<Layer>& layers, const float* blocks, float* vector) {
  for (const Layer& layer : layers)
    each_weight(layer, [&](int64_t there, int64_t here) { vector[there] = blocks[here]; });
}

// Turns scores into the gradient of the mean cross-entropy; returns that mean. `weights` are null if all are 1.
float cross_entropy(float* scores, const int64_t* rows, const int64_t* y, const float* weights, int64_t m, int64_t classes,
                    int64_t padded, bool normalise) {
  float total = 0, loss = 0;
  for (int64_t i = 0; i < m; i++) total += weights && normalise ? weights[rows[i]] : 1.0f;
  if (!(total > 0)) total = 1.0f;
  for (int64_t i = 0; i < m; i++) {
    float *row = scores + i * padded, most = row[0], all_of_them = 0;
    for (int64_t j = 1; j < classes; j++) most = row[j] > most ? row[j] : most;
    const float right = row[y[rows[i]]] - most, weight = weights ? weights[rows[i]] : 1.0f;
    for (int64_t j = 0; j < padded; j += LANES) {
      Lanes parts[PARTS] = {};
      for (int64_t part = 0, at = j; part < PARTS && at < padded; part++, at += V) {
        put(row + at, exponential(get(row + at) - most));
        for (int64_t l = classes - at; l < V; l++)
          if (l >= 0) row[at + l] = 0;
        parts[part] = get(row + at);
      }
      all_of_them += sum(parts);
    }
    loss += weight * (__builtin_logf(all_of_them) - right);
    const float share = weight / total;
    for (int64_t j = 0; j < padded; j += V) put(row + j, get(row + j) / all_of_them * share);
    row[y[rows[i]]] -= share;
  }
  return loss / total;
}

}  // namespace

extern "C" {

// `about` has five numbers per layer: inputs, outputs, where its weight and its bias begin in a vector (-1: no bias), and its
// activation. `vectors` (clients, size) are the clients' models, which are trained; `speeds`, for momentum, and `given`,
// what is added to their gradients, are as large, or null. `x` (rows, inputs) and `y` are examples, `weights` null or one for each. `order`
// are the rows of all batches of all clients, one after the other; `cuts` where each batch ends in a client's, `steps` how
// many each client has. `losses` are the mean losses of the clients' examples, without penalties. `alpha` goes with the
// trace norm of the last layer; `beta`, `gamma` and `squared` are those of Penalty. With `examples`, how many each client has
// (or null), beta is multiplied by the root of those over the batch's. `drawn`, for gamma, has a mean of features for each
// client. Returns 0, or 1 if memory is short.
int stack_train(const int64_t* about, const float* scales, int64_t depth, float* vectors, int64_t clients, int64_t size,
                float* speeds, const float* start, const float* given, const float* x, const int64_t* y, const float* weights,
                const int64_t* order, const int64_t* cuts, const int64_t* steps, double* losses, int64_t most, float lr,
                float momentum, float decay, float pull, int64_t normalise, float alpha, float beta, float gamma,
                int64_t squared, const float* examples, const float* drawn) {
  try {
    std::vector<Layer> layers;
    int64_t total = 0, widest = 0;
    for (int64_t n = 0; n < depth; n++, about += 5) {
      Layer layer = {about[0], about[1], about[2], about[3], Activation(about[4]), scales[n], 0, 0, 0};
      layer.padded = (layer.outputs + V - 1) / V * V;
      layer.rows = total, layer.offsets = total + layer.padded * layer.inputs;
      total = layer.offsets + layer.padded;
      widest = layer.padded > widest ? layer.padded : widest;
      layers.push_back(layer);
    }
    std::vector<float> blocks(total), velocities(momentum ? total : 0), starts(pull ? total : 0), givens(given ? total : 0);
    std::vector<float> besides(alpha ? total : 0);  // what the last layer's weights are given
    std::vector<float> batch(most * layers[0].inputs), ones(most, 1.0f), d(most * widest), d_x(most * widest);
    // What every layer returns; inner ones without padding, for they are the inputs of the next.
    std::vector<std::vector<float>> outs, slopes(depth);
    for (const Layer& layer : layers) outs.emplace_back(most * layer.padded);
    for (int64_t n = 0; n < depth; n++)
      if (layers[n].activation == COSINE) slopes[n].resize(most * layers[n].padded);
    std::vector<std::vector<float>> inner(depth);
    for (int64_t n = 0; n + 1 < depth; n++) inner[n].resize(most * layers[n].outputs);
    if (pull) pack(layers, start, starts);
    Rule rule = {lr, momentum, decay, pull, pull ? starts.data() : nullptr, given ? givens.data() : nullptr};
    const int64_t inputs = layers[0].inputs;
    for (int64_t client = 0; client < clients; client++) {
      pack(layers, vectors + client * size, blocks);
      if (given) pack(layers, given + client * size, givens);
      if (momentum) pack(layers, speeds + client * size, velocities);
      double seen = 0, lost = 0;
      int64_t first = 0;
      for (int64_t number = 0; number < steps[client]; number++) {
        const int64_t m = cuts[number] - first, *rows = order + first;
        for (int64_t i = 0; i < m; i++) std::memcpy(&batch[i * inputs], x + rows[i] * inputs, 4 * inputs);
        const float* in = batch.data();
        for (int64_t n = 0; n < depth; n++) {
          const Layer& layer = layers[n];
          float* out = outs[n].data();
          forward(layer, in, m, blocks.data(), out);
          for (int64_t at = 0; at < m * layer.padded && layer.activation != NONE; at += V) {
            const Lanes z = get(out + at);
            if (layer.activation == RELU) {
              put(out + at, z < all(0.0f) ? all(0.0f) : z);
            } else {
              Lanes sine, cosine;
              sine_and_cosine(z, sine, cosine);
              put(out + at, layer.scale * cosine), put(&slopes[n][at], -layer.scale * sine);
            }
          }
          if (n + 1 < depth)
            for (int64_t i = 0; i < m; i++)
              std::memcpy(&inner[n][i * layer.outputs], out + i * layer.padded, 4 * layer.outputs);
          in = inner[n].data();
        }
        const Layer& last = layers[depth - 1];
        float* scores = outs[depth - 1].data();
        const float loss = cross_entropy(scores, rows, y, weights, m, last.outputs, last.padded, normalise);
        seen += m, lost += double(loss) * m;
        float* of_outputs = scores;
        for (int64_t n = depth - 1; n >= 0; n--) {
          const Layer& layer = layers[n];
          const float* from = n ? inner[n - 1].data() : batch.data();
          if (n) {
            const Layer& below = layers[n - 1];
            for (int64_t i = 0; i < m; i++)
              for (int64_t l = below.outputs; l < below.padded; l++) d_x[i * below.padded + l] = 0;
            backward(layer, of_outputs, m, blocks.data(), d_x.data(), below.padded);
            if (n == depth - 1 && (beta || gamma)) {
              const float share = examples ? __builtin_sqrtf(examples[client] / float(m)) : 1.0f;
              const Penalty penalty = {beta * share, gamma, squared != 0, drawn ? drawn + client * layer.inputs : nullptr};
              add_feature_penalties(from, m, layer.inputs, penalty, d_x.data(), below.padded);
            }
            const float *out = outs[n - 1].data(), *slope = slopes[n - 1].data();
            for (int64_t at = 0; at < m * below.padded && below.activation != NONE; at += V) {
              const Lanes each = get(&d_x[at]);
              const Lanes zero = all(0.0f);
              put(&d_x[at], below.activation == COSINE ? each * get(slope + at) : (get(out + at) > zero ? each : zero));
            }
          }
          float* moving = momentum ? velocities.data() : nullptr;
          Rule of_weights = rule;
          if (n == depth - 1 && alpha) {
            for (int64_t at = layer.rows; at < layer.offsets; at++) besides[at] = given ? givens[at] : 0.0f;
            add_trace_norm(layer, blocks.data(), alpha, besides.data());
            of_weights.given = besides.data();
          }
          step(layer.inputs, layer.padded, from, of_outputs, m, layer.rows, blocks.data(), moving, of_weights);
          if (layer.bias >= 0) step(1, layer.padded, ones.data(), of_outputs, m, layer.offsets, blocks.data(), moving, rule);
          d.swap(d_x);
          of_outputs = d.data();
        }
        first = cuts[number];
      }
      unpack(layers, blocks.data(), vectors + client * size);
      if (momentum) unpack(layers, velocities.data(), speeds + client * size);
      losses[client] = seen ? lost / seen : 0.0;
      order += first, cuts += steps[client];
    }
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}
}
