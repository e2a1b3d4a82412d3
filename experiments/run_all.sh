#!/bin/sh
# Runs the papers' experiments, those first that show most for their time. Interrupt it at any time: the same command goes on.
# JOBS trials at once (1), results below OUT (runs/papers).
set -e
cd "$(dirname "$0")/.."

sweep() { # FILE SCALE [OPTIONS]: one experiment; a trial that fails does not stop the others
    file=$1 scale=$2 out=$1
    [ "$scale" = full ] || out=$file-$scale
    shift 2
    nice -n 19 env OMP_NUM_THREADS=1 fedquilt sweep "experiments/$file.toml" --scale "$scale" --jobs "${JOBS:-1}" \
        --out "${OUT:-runs/papers}/$out" "$@" || [ $? -eq 1 ]
}

# At full scale
sweep mcmahan-2017/figure-1 full
sweep wei-2022/features full
sweep wei-2022/penalties full
# The values that features.toml and penalties.toml choose are written into table-2.toml and table-3.toml by hand; a test compares them.
for set in vehicle splice a1a dna svmguide1 satimage usps pendigits; do sweep wei-2022/table-3 full --only "$set"; done
sweep wei-2022/table-2 full
sweep wei-2022/clustering full
sweep wei-2022/oneshot full
sweep wei-2022/longer full
sweep wei-2022/figure-2 full
sweep mcmahan-2017/table-4 full --only IID
sweep mcmahan-2017/table-1 full --only B=10
sweep mcmahan-2017/table-4 full
sweep mcmahan-2017/table-1 full
sweep mcmahan-2017/seeds full
sweep wei-2022/table-1 full
sweep wei-2022/table-3 full --only MNIST
sweep mcmahan-2017/table-2 full --only IID
sweep mcmahan-2017/table-1-cnn full --only B=10
sweep mcmahan-2017/table-2-lstm full --only "E=5, B=10"

# At a smaller scale, so that the finding shows
for table in table-1 table-2 table-3 table-4 table-5 combinations; do sweep ozdayi-2020/$table small; done
for figure in 1 2 3 4 5 6; do sweep hsu-2019/figure-$figure small; done
for file in table-2-cifar table-3-cifar figure-4 figure-8; do sweep hsu-2020/$file small; done
start=experiments/hsu-2020/start # the model that Tables 4 and 5 and Figure 9 begin with
if [ ! -f $start/model.safetensors ]; then
    run=${OUT:-runs/papers}/start
    if [ -d "$run" ]; then fedquilt resume "$run"; else fedquilt run $start/spec.toml --out "$run"; fi
    fedquilt export "$run" $start/model.safetensors
fi
for file in table-4-cifar table-5-cifar figure-9-cifar; do sweep hsu-2020/$file small; done
for file in figure-2 figure-3 figure-4 figure-6 figure-7 figure-8 figure-9 table-3; do sweep mcmahan-2017/$file small; done
for file in mnist synthetic cifar10; do sweep benchmark/$file small; done
sweep benchmark/mnist middle

# A night and more each
sweep ozdayi-2020/table-1 full
sweep ozdayi-2020/table-2 full
sweep ozdayi-2020/combinations full --only 5% --only agreed --only 0.9
sweep hsu-2019/figure-5 middle

# All that is left, in the papers' own settings: weeks on two cores; some need photographs or texts that must be fetched first.
for file in experiments/*-20*/*.toml experiments/benchmark/*.toml; do
    name=${file#experiments/}
    sweep "${name%.toml}" full
done
