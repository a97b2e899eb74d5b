"""The stages as methods and functions. Made by python/tools/stubs.py: `make stubs`."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal, overload

from ._pipeline import Pipeline

__all__ = [
    "npy",
    "safetensors",
    "jsonl",
    "npz",
    "idx",
    "cifar",
    "records",
    "tokens",
    "csv",
    "text",
    "range",
    "folder",
    "zip",
    "mix",
    "concat",
]

@overload
def npy(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    map: bool = False,
    name: str = 'x',
) -> Pipeline:
    """Samples from arrays that numpy saved; the first dimension counts them.

    files: str or PathLike[str], one or several, required
        one or several .npy files, read as one: their samples follow each other; dtype and
        all dimensions but the first must agree
    map: True or False, default False
        map the files instead of reading them: saves a copy, but a file that is truncated
        while it is mapped kills the process; needed for arrays in Fortran order
    name: str, default 'x'
        the field's name

    As text: npy train-0.npy train-1.npy name=image
    """
@overload
def npy(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    map: bool = False,
    name: str = 'x',
) -> Pipeline: ...

def safetensors(
    file: str | PathLike[str],
    *,
    tensor: str | None = None,
    name: str = 'x',
    map: bool = False,
) -> Pipeline:
    """Rows of one tensor of a safetensors file; its first dimension counts them.

    file: str or PathLike[str], required
        a .safetensors file
    tensor: str
        the tensor's name in the file; may be left out if there is only one
    name: str, default 'x'
        the field's name
    map: True or False, default False
        map the file instead of reading it: saves a copy, but a file that is truncated while
        it is mapped kills the process

    As text: safetensors features.safetensors tensor=embedding
    """

@overload
def jsonl(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    fields: str | Sequence[str] | None = None,
    types: str | Sequence[str] | None = None,
    max_bytes: int | str = 0,
    max_length: int = 4096,
    missing: Literal['error', 'nan', 'zero'] = 'error',
    index: Literal['cache', 'beside'] = 'cache',
) -> Pipeline:
    """Samples from files of one JSON object per line.

    files: str or PathLike[str], one or several, required
        files of one JSON object per line, read as one; or a pipe, or - for standard input
    fields: str, one or several
        keys to read, a.b for the key b of the object a; else those of the first record
        whose values are numbers, booleans, strings, lists of numbers or lists of such lists
        of one length
    types: str, one or several
        types of the fields, in their order or as key:type: text, bool, float32, float64,
        integers; lists as int64[] or, of one length, float32[3]; lists of lists as
        float32[][4]; else from the first 100 records
    max_bytes: int or str 0 to 1073741824, default 0
        longest line; a longer one is a bad sample; 0: 1 MiB, or of a stream, whose batches
        need that much room for each, 64 KiB
    max_length: int 1 to 268435456, default 4096
        longest list of varying length
    missing: 'error' | 'nan' | 'zero', default 'error'
        what a null, or a key that is not there, becomes; zero makes texts and lists empty
    index: 'cache' | 'beside', default 'cache'
        where the index of each file is kept: in the index directory, or beside the file

    As text: jsonl train.jsonl fields=text,label types=label:int64
    """
@overload
def jsonl(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    fields: str | Sequence[str] | None = None,
    types: str | Sequence[str] | None = None,
    max_bytes: int | str = 0,
    max_length: int = 4096,
    missing: Literal['error', 'nan', 'zero'] = 'error',
    index: Literal['cache', 'beside'] = 'cache',
) -> Pipeline: ...

def npz(
    file: str | PathLike[str],
    *,
    array: str | None = None,
    map: bool = False,
    name: str = 'x',
) -> Pipeline:
    """Samples from one of the arrays that numpy saved together.

    file: str or PathLike[str], required
        an .npz file; a compressed array is held in memory, a stored one is read where it
        lies
    array: str
        which array, with or without .npy; not needed if there is only one
    map: True or False, default False
        map a stored array instead of reading it: saves a copy, but a file that is truncated
        while it is mapped kills the process; needed for stored arrays in Fortran order
    name: str, default 'x'
        the field's name

    As text: npz train.npz array=images name=image
    """

@overload
def idx(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    name: str = 'x',
) -> Pipeline:
    """Samples from IDX files, the format of MNIST, also gzipped.

    files: str or PathLike[str], one or several, required
        one or several IDX files, read as one: type and all dimensions but the first must
        agree; one that is gzipped is held in memory
    name: str, default 'x'
        the field's name

    As text: idx train-images-idx3-ubyte.gz name=image
    """
@overload
def idx(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    name: str = 'x',
) -> Pipeline: ...

@overload
def cifar(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    kind: Literal['auto', 10, 100] = 'auto',
) -> Pipeline:
    """Images and labels from the binary files of CIFAR-10 and CIFAR-100.

    files: str or PathLike[str], one or several, required
        one or several files of CIFAR's binary version
    kind: 'auto' | 10 | 100, default 'auto'
        10: image and label; 100: image, label (the fine one) and coarse; auto: by the size
        of the files

    As text: cifar data_batch_1.bin data_batch_2.bin
    """
@overload
def cifar(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    kind: Literal['auto', 10, 100] = 'auto',
) -> Pipeline: ...

@overload
def records(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    bytes: int | str,
    fields: str | Sequence[str] | None = None,
    skip: int | str = 0,
    order: Literal['little', 'big'] = 'little',
    map: bool = False,
    name: str = 'x',
) -> Pipeline:
    """Raw records of one size, with fields that the text describes.

    files: str or PathLike[str], one or several, required
        one or several files of records, read as one; or - (standard input) or a pipe alone,
        read as a stream
    bytes: int or str 1 to 1099511627776, required
        bytes of a record
    fields: str, one or several
        what a record holds: name:dtype, name:dtype:3x32x32, each after the one before it or
        at @BYTE; without fields: uint8, all its bytes
    skip: int or str 0 to 1099511627776, default 0
        bytes before the first record of each file
    order: 'little' | 'big', default 'little'
        byte order of elements of more than one byte
    map: True or False, default False
        map the files instead of reading them: saves a copy, but a file that is truncated
        while it is mapped kills the process
    name: str, default 'x'
        the field's name where fields= is not given

    As text: records train.bin bytes=3073 fields=label:uint8,image:uint8:3x32x32
    """
@overload
def records(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    bytes: int | str,
    fields: str | Sequence[str] | None = None,
    skip: int | str = 0,
    order: Literal['little', 'big'] = 'little',
    map: bool = False,
    name: str = 'x',
) -> Pipeline: ...

@overload
def tokens(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    length: int,
    stride: int = 0,
    shift: bool = True,
    format: Literal['auto', 'u16', 'u32', 'llmc', 'megatron'] = 'auto',
    map: bool = False,
) -> Pipeline:
    """Windows of tokens from nanoGPT, llm.c and Megatron files.

    files: str or PathLike[str], one or several, required
        one or several token files of one format; a Megatron pair is named by its .bin or
        its .idx
    length: int 1 to 16777216, required
        tokens in x, and in y
    stride: int 0 to 1099511627776, default 0
        tokens from the beginning of one window to that of the next; 0: `length`, so that no
        token of x comes twice
    shift: True or False, default True
        yes: also y, which is x shifted by one token; no: only x
    format: 'auto' | 'u16' | 'u32' | 'llmc' | 'megatron', default 'auto'
        u16, u32: only tokens; llmc: after llm.c's header; megatron: a .bin with an .idx;
        auto: Megatron if there is an index, llm.c if there is its magic, else u16
    map: True or False, default False
        map the files instead of reading them: saves a copy, but a file that is truncated
        while it is mapped kills the process

    As text: tokens train.bin length=1024
    """
@overload
def tokens(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    length: int,
    stride: int = 0,
    shift: bool = True,
    format: Literal['auto', 'u16', 'u32', 'llmc', 'megatron'] = 'auto',
    map: bool = False,
) -> Pipeline: ...

@overload
def csv(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    header: Literal['auto', True, False] = 'auto',
    delimiter: str = ',',
    columns: str | Sequence[str] | None = None,
    types: str | Sequence[str] | None = None,
    max_bytes: int | str = 0,
    max_text: int | str | None = None,
    pack: bool = False,
    name: str = 'x',
    missing: Literal['error', 'nan', 'zero'] = 'error',
    index: Literal['cache', 'beside'] = 'cache',
) -> Pipeline:
    """Records of CSV files; each column is a field, or all one vector.

    files: str or PathLike[str], one or several, required
        one or several CSV files with the same header, or - for standard input
    header: 'auto' | True | False, default 'auto'
        whether the first record of each file names the columns; auto: yes, unless one of
        its fields is a number. Without a header columns are called c0, c1, ...
    delimiter: str, default ','
        the character between fields; tab for a tabulator
    columns: str, one or several
        names of the columns to read, in this order; none: all
    types: str, one or several
        one type for each column read, one for all, or name:type; of int64, float64, other
        integers, float32, bool, text, bytes; columns without one are int64, float64 or
        text, as their first 100 records are
    max_bytes: int or str 0 to 1073741824, default 0
        longest record; a longer one is a bad sample; 0: 1 MiB, or of a stream, whose
        batches need that much room for each, 64 KiB
    max_text: int or str 1 to 1073741824
        longest text in a column; a longer one is a bad sample; not given: as long as the
        record
    pack: True or False, default False
        yes: one field, a vector of all columns, float32 unless types= says otherwise
    name: str, default 'x'
        with pack=yes: the field's name
    missing: 'error' | 'nan' | 'zero', default 'error'
        what an empty number (or NA, N/A, null, none) is: a bad sample, NaN or 0
    index: 'cache' | 'beside', default 'cache'
        where the index of each file is kept: in the index directory, or beside the file

    As text: csv train.csv columns=age,income,label types=float32,float32,int64
    """
@overload
def csv(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    header: Literal['auto', True, False] = 'auto',
    delimiter: str = ',',
    columns: str | Sequence[str] | None = None,
    types: str | Sequence[str] | None = None,
    max_bytes: int | str = 0,
    max_text: int | str | None = None,
    pack: bool = False,
    name: str = 'x',
    missing: Literal['error', 'nan', 'zero'] = 'error',
    index: Literal['cache', 'beside'] = 'cache',
) -> Pipeline: ...

@overload
def text(
    *files: str | PathLike[str] | Sequence[str | PathLike[str]],
    name: str = 'text',
    max_bytes: int | str = 0,
    index: Literal['cache', 'beside'] = 'cache',
    form: Literal['text', 'bytes'] = 'text',
) -> Pipeline:
    """Lines of text files, one sample each.

    files: str or PathLike[str], one or several, required
        one or several files of lines, read as one; or - for standard input, or a pipe: then
        it is read once, in its order
    name: str, default 'text'
        the field's name
    max_bytes: int or str 0 to 1099511627776, default 0
        longest line; a longer one is a bad sample; 0: 1 MiB, or of a stream, whose batches
        need that much room for each, 64 KiB
    index: 'cache' | 'beside', default 'cache'
        where the index of each file is kept: in the index directory, or beside the file
    form: 'text' | 'bytes', default 'text'
        text: lines must be UTF-8; bytes: lines of any bytes

    As text: text corpus.txt max_bytes=64KiB
    """
@overload
def text(
    *,
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    name: str = 'text',
    max_bytes: int | str = 0,
    index: Literal['cache', 'beside'] = 'cache',
    form: Literal['text', 'bytes'] = 'text',
) -> Pipeline: ...

def range(
    count: int,
    *,
    name: str = 'index',
) -> Pipeline:
    """Samples that hold their own number, for trying and measuring.

    count: int from 1, required
        how many samples; they are numbered from 0
    name: str, default 'index'
        the field's name

    As text: range 1000
    """

@overload
def folder(
    *directories: str | PathLike[str] | Sequence[str | PathLike[str]],
    classes: Literal['auto', True, False] = 'auto',
    extensions: str | Sequence[str] = ('jpg', 'jpeg', 'png', 'webp'),
    recursive: bool = True,
    links: bool = True,
    allow_empty: bool = False,
    probe: bool = True,
    index: Literal['cache', 'beside'] = 'cache',
    field: str = 'image',
    label: str = 'label',
) -> Pipeline:
    """Image files below directories, with their subdirectories as classes.

    directories: str or PathLike[str], one or several, required
        one or several directories; their samples come one directory after the other
    classes: 'auto' | True | False, default 'auto'
        yes: each subdirectory is a class, and its number among the sorted names the label;
        auto: yes if the first directory has subdirectories
    extensions: str, one or several, default ('jpg', 'jpeg', 'png', 'webp')
        which files are samples, by the end of their name in any case; any: all
    recursive: True or False, default True
        also files in directories further down
    links: True or False, default True
        follow links to files and directories; no: leave them out
    allow_empty: True or False, default False
        yes: a class without files keeps its number; no: it is an error
    probe: True or False, default True
        read each image's header when the folder is listed, so that the plan knows what the
        largest needs
    index: 'cache' | 'beside', default 'cache'
        where the listing is kept: in the index directory, or beside the first directory
    field: str, default 'image'
        name of the field with the file's bytes
    label: str, default 'label'
        name of the field with the class

    As text: folder train extensions=jpg,png
    """
@overload
def folder(
    *,
    directories: str | PathLike[str] | Sequence[str | PathLike[str]],
    classes: Literal['auto', True, False] = 'auto',
    extensions: str | Sequence[str] = ('jpg', 'jpeg', 'png', 'webp'),
    recursive: bool = True,
    links: bool = True,
    allow_empty: bool = False,
    probe: bool = True,
    index: Literal['cache', 'beside'] = 'cache',
    field: str = 'image',
    label: str = 'label',
) -> Pipeline: ...

@overload
def zip(
    *parts: Pipeline | str | Sequence[Pipeline | str],
) -> Pipeline:
    """Joins the fields of several sources, sample by sample.

    parts: Pipeline or str, one or several, required
        pipelines with equally many samples and no field name in common; sample i is made of
        sample i of each

    As text: zip (npy images.npy name=x) (npy labels.npy name=y)
    """
@overload
def zip(*, parts: Pipeline | str | Sequence[Pipeline | str]) -> Pipeline: ...

@overload
def mix(
    *parts: tuple[float, Pipeline | str] | Sequence[tuple[float, Pipeline | str]],
    length: int = 0,
    seed: int = 0,
) -> Pipeline:
    """Samples of several pipelines in turn, by weight.

    parts: (weight, pipeline), one or several, required
        weight (pipeline), once for each part; weights are relative to their sum
    length: int from 0, default 0
        samples in an epoch, parts restarting as needed; 0: until a part is exhausted
    seed: int, default 0
        another number gives another sequence of parts

    As text: mix 0.7 (npy a.npy | shuffle) 0.3 (npy b.npy | shuffle)
    """
@overload
def mix(
    *,
    parts: tuple[float, Pipeline | str] | Sequence[tuple[float, Pipeline | str]],
    length: int = 0,
    seed: int = 0,
) -> Pipeline: ...

@overload
def concat(
    *parts: Pipeline | str | Sequence[Pipeline | str],
) -> Pipeline:
    """The samples of several pipelines, one pipeline after the other.

    parts: Pipeline or str, one or several, required
        pipelines with the same fields; the samples of the first come first

    As text: concat (npy a.npy) (npy b.npy)
    """
@overload
def concat(*, parts: Pipeline | str | Sequence[Pipeline | str]) -> Pipeline: ...

class Stages:
    """The stages that continue a pipeline, as methods."""

    def shuffle(
        self,
        *,
        seed: int = 0,
        block: int = 0,
        each_epoch: bool = True,
        buffer: int | str = 0,
    ) -> Pipeline:
        """A random order of all samples, without a buffer.

        seed: int, default 0
            another number gives another order
        block: int from 0, default 0
            shuffle blocks of this many neighbouring samples, then inside groups of 16 blocks:
            for disks where single random reads are slow; 0 shuffles single samples
        each_epoch: True or False, default True
            yes: a new order in every epoch; no: the same order in all epochs
        buffer: int or str 0 to 1099511627776, default 0
            memory for samples to shuffle, only for streams and after filters, where samples
            have no numbers; half of it is filled while the other half is delivered

        As text: shuffle seed=7
        """

    def split(
        self,
        part: Literal['train', 'validation', 'test'],
        *,
        validation: float = 0.1,
        test: float = 0.0,
        seed: int = 0,
        stratify: str | None = None,
    ) -> Pipeline:
        """The train, validation or test part of the samples.

        part: 'train' | 'validation' | 'test', required
            which part to keep; train is the rest after the other two
        validation: float from 0, default 0.1
            size of the validation part: below 1 a fraction of the samples, else a number of
            samples
        test: float from 0, default 0.0
            size of the test part: below 1 a fraction of the samples, else a number of samples
        seed: int, default 0
            another number gives other parts; all pipelines over one source need the same number
        stratify: str
            field whose values are divided evenly over the parts; all values are read when the
            pipeline is opened

        As text: split train validation=0.1 seed=7
        """

    def fold(
        self,
        fold: int,
        *,
        of: int = 5,
        part: Literal['validation', 'train'] = 'validation',
        stratify: str | None = None,
        seed: int = 0,
    ) -> Pipeline:
        """One fold of the samples, or all others, for cross-validation.

        fold: int from 0, required
            which fold is held out: 0 to the number of folds minus 1
        of: int from 2, default 5
            number of folds; their sizes differ by one at most
        part: 'validation' | 'train', default 'validation'
            validation: the fold itself; train: all other folds
        stratify: str
            field whose values are divided evenly over the folds; all values are read when the
            pipeline is opened
        seed: int, default 0
            another number gives other folds; all pipelines over one source need the same number

        As text: fold 0 of=5 part=train seed=7
        """

    def take(
        self,
        count: int,
    ) -> Pipeline:
        """The first samples only.

        count: int from 0, required
            samples to take; a larger count takes all

        As text: take 1000
        """

    def skip(
        self,
        count: int,
    ) -> Pipeline:
        """All but the first samples.

        count: int from 0, required
            samples to leave out at the beginning; a larger count leaves none

        As text: skip 1000
        """

    def repeat(
        self,
        times: int,
    ) -> Pipeline:
        """Several passes over the samples as one longer epoch.

        times: int from 1, required
            passes in one epoch

        As text: repeat 3
        """

    def subset(
        self,
        file: str | PathLike[str],
    ) -> Pipeline:
        """The samples whose numbers a file names, in its order.

        file: str or PathLike[str], required
            numbers of samples, counted from 0 in the order so far: text with one a line (#
            begins a comment), or npy with integers in one dimension

        As text: subset chosen.txt
        """

    def balance(
        self,
        label: str,
        *,
        length: int = 0,
        seed: int = 0,
    ) -> Pipeline:
        """Every class equally often, in a new order every epoch.

        label: str, required
            field whose values are the classes; all values are read when the pipeline is opened
        length: int from 0, default 0
            samples in an epoch; 0: as many as needed for every sample to come at least once
        seed: int, default 0
            another number gives another order

        As text: balance label
        """

    def weighted(
        self,
        label: str,
        *,
        weights: float | Sequence[float] | None = None,
        length: int = 0,
        seed: int = 0,
    ) -> Pipeline:
        """Random draws with replacement, by the weights of the classes.

        label: str, required
            field whose values are the classes; all values are read when the pipeline is opened
        weights: float from 0, one or several
            how often each class is drawn, relative to the sum, in ascending order of the
            classes; default: all equally often, so a sample's weight is 1 over the frequency of
            its class
        length: int from 0, default 0
            draws in an epoch; 0: as many as there are samples
        seed: int, default 0
            another number gives other draws

        As text: weighted label weights=1,2,5
        """

    def cast(
        self,
        dtype: str,
        *,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Converts elements to another type.

        dtype: str, required
            type to convert to: uint8, int64, float16, bfloat16, float32, ...
        on: str, one or several
            fields to convert; default: all except text, bytes and class numbers

        As text: cast int64 on=label
        """

    def normalize(
        self,
        preset: Literal['own', 'unit', 'imagenet'] = 'own',
        *,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        max: float | None = None,
        axis: int | None = None,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Float32 values (value / max - mean) / std, for each channel.

        preset: 'own' | 'unit' | 'imagenet', default 'own'
            own (mean= and std=), unit (0 to 1), or the constants of imagenet
        mean: float, one or several
            one value, or one for each channel
        std: float, one or several
            one value, or one for each channel; above 0
        max: float from 1e-30
            values are divided by it first; default: the range of the field: 255 for uint8 and
            images, 65535 for uint16; otherwise unit and imagenet need it, and mean= and std= do
            not divide
        axis: int -8 to 8
            dimension of the channels; default: found by its length
        on: str, one or several
            fields to normalise; default: the first

        As text: normalize mean=0.49,0.48,0.45 std=0.25,0.24,0.26
        """

    def layout(
        self,
        to: str,
        *,
        from_: str = 'hwc',
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Puts dimensions into another order.

        to: str, required
            a letter for each dimension, in the new order: chw
        from_: str, default 'hwc'
            the same letters in the order of the data
        on: str, one or several
            fields to reorder; default: the first

        As text: layout chw from=hwc
        """

    @overload
    def reshape(
        self,
        *shape: int | Sequence[int],
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Gives the same elements other dimensions.

        shape: int from -1, one or several, required
            the new dimensions; one may be -1
        on: str, one or several
            fields to reshape; default: the first

        As text: reshape 28 28 1
        """
    @overload
    def reshape(
        self,
        *,
        shape: int | Sequence[int],
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    def one_hot(
        self,
        classes: int,
        *,
        dtype: str = 'float32',
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Makes class numbers vectors with a 1 at their index.

        classes: int 1 to 16777216, required
            number of classes
        dtype: str, default 'float32'
            type of the vector's elements
        on: str, one or several
            fields of class numbers; default: the last

        As text: one_hot 10 on=label
        """

    def unbatch(
        self,
        *,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Makes many samples of one, along the first dimension of its fields.

        on: str, one or several
            fields to take apart; others are repeated; default: all

        As text: unbatch on=x,label
        """

    def pad(
        self,
        *,
        on: str | Sequence[str],
        to: int = 0,
        value: float = 0.0,
        cut: bool = False,
        lengths: str | None = None,
    ) -> Pipeline:
        """Pads samples to one length.

        on: str, one or several, required
            fields that differ in length from sample to sample
        to: int 0 to 1073741824, default 0
            length of every sample; 0: the length of the batch's longest
        value: float, default 0.0
            value of the padding
        cut: True or False, default False
            cut longer samples at `to`; otherwise they are bad samples
        lengths: str
            name of the field with the samples' own lengths; default: NAME_length

        As text: pad on=tokens to=512 value=-1 cut=yes
        """

    def copy(
        self,
        from_: str,
        to: str,
    ) -> Pipeline:
        """A second field with the same value, such as another view of an image.

        from_: str, required
            the field
        to: str, required
            name of the second field

        As text: copy image view2
        """

    def decode(
        self,
        mode: Literal['rgb', 'rgba', 'gray', 'mask'] = 'rgb',
        *,
        orient: bool = False,
        fast: bool = False,
        damaged: Literal['fail', 'keep'] = 'fail',
        room: int | str | None = None,
        max_pixels: int = 178956970,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Decodes JPEG, PNG and WebP images, only the part that later crops need.

        mode: 'rgb' | 'rgba' | 'gray' | 'mask', default 'rgb'
            the pixels' channels; mask: classes, resized by nearest
        orient: True or False, default False
            turn and mirror by the EXIF orientation
        fast: True or False, default False
            decode JPEG at half, quarter or eighth size if that is enough; the pixels differ
            slightly
        damaged: 'fail' | 'keep', default 'fail'
            fail: damaged or cut data are a bad sample; keep: decode as much as possible
        room: int or str 65536 to 1000000000000000
            memory for decoding one image, in each worker; default: known from the index, or
            16MiB
        max_pixels: int 1 to 4294836225, default 178956970
            larger images are bad samples, and the plan has no memory for them
        on: str, one or several
            fields of encoded images; default: all fields of bytes

        As text: decode rgb orient=yes
        """

    @overload
    def resize(
        self,
        *size: int | Sequence[int],
        filter: Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos'] = 'bilinear',
        max: int | None = None,
        antialias: bool = True,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Resizes images, as Pillow does.

        size: int 1 to 32768, one or several, required
            the shorter side, or height and width
        filter: 'nearest' | 'box' | 'bilinear' | 'bicubic' | 'lanczos', default 'bilinear'
            how pixels are weighted; masks always use nearest
        max: int 1 to 65535
            the most for the longer side; the shorter side then becomes smaller
        antialias: True or False, default True
            no: float32 values as from tf.image.resize with its defaults; nearest, bilinear or
            bicubic
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: resize 256 filter=bicubic
        """
    @overload
    def resize(
        self,
        *,
        size: int | Sequence[int],
        filter: Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos'] = 'bilinear',
        max: int | None = None,
        antialias: bool = True,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    @overload
    def crop(
        self,
        *size: int | Sequence[int],
        x: int = 0,
        y: int = 0,
        pad: bool = False,
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Crops the same part of every image.

        size: int 1 to 32768, one or several, required
            side of a square, or height and width
        x: int 0 to 65535, default 0
            first column
        y: int 0 to 65535, default 0
            first row
        pad: True or False, default False
            pad smaller images, which are bad samples otherwise
        fill: int 0 to 255, one or several, default 0
            the colour of the padding, 0 to 255; one value or one for each channel
        mask_fill: int 0 to 255, default 0
            class of padding pixels in masks
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: crop 224 224 x=16 y=16
        """
    @overload
    def crop(
        self,
        *,
        size: int | Sequence[int],
        x: int = 0,
        y: int = 0,
        pad: bool = False,
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    @overload
    def center_crop(
        self,
        *size: int | Sequence[int],
        pad: bool = False,
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Crops the middle of every image.

        size: int 1 to 32768, one or several, required
            side of a square, or height and width
        pad: True or False, default False
            pad smaller images, which are bad samples otherwise
        fill: int 0 to 255, one or several, default 0
            the colour of the padding, 0 to 255; one value or one for each channel
        mask_fill: int 0 to 255, default 0
            class of padding pixels in masks
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: center_crop 224
        """
    @overload
    def center_crop(
        self,
        *,
        size: int | Sequence[int],
        pad: bool = False,
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    @overload
    def random_crop(
        self,
        *size: int | Sequence[int],
        padding: int = 0,
        pad: bool = False,
        edge: Literal['constant', 'edge', 'reflect', 'symmetric'] = 'constant',
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Crops a part at a random position.

        size: int 1 to 32768, one or several, required
            side of a square, or height and width
        padding: int 0 to 4096, default 0
            pixels added on every side first
        pad: True or False, default False
            pad smaller images, which are bad samples otherwise
        edge: 'constant' | 'edge' | 'reflect' | 'symmetric', default 'constant'
            the padding: one colour, the last pixel, or the image mirrored
        fill: int 0 to 255, one or several, default 0
            the colour, 0 to 255; one value or one for each channel
        mask_fill: int 0 to 255, default 0
            class of padding pixels in masks
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: random_crop 32 padding=4
        """
    @overload
    def random_crop(
        self,
        *,
        size: int | Sequence[int],
        padding: int = 0,
        pad: bool = False,
        edge: Literal['constant', 'edge', 'reflect', 'symmetric'] = 'constant',
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    @overload
    def random_resized_crop(
        self,
        *size: int | Sequence[int],
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: float | Sequence[float] = (0.75, 1.3333333333333333),
        filter: Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos'] = 'bilinear',
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Crops a random part of random size and shape, and resizes it.

        size: int 1 to 32768, one or several, required
            side of a square, or height and width
        scale: float 1e-09 to 1, one or several, default (0.08, 1.0)
            area of the part, smallest and largest, as a share of the image's
        ratio: float 0.0001 to 10000, one or several, default (0.75, 1.3333333333333333)
            width to height of the part, smallest and largest
        filter: 'nearest' | 'box' | 'bilinear' | 'bicubic' | 'lanczos', default 'bilinear'
            how pixels are weighted; masks always use nearest
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: random_resized_crop 224 scale=0.35,1
        """
    @overload
    def random_resized_crop(
        self,
        *,
        size: int | Sequence[int],
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: float | Sequence[float] = (0.75, 1.3333333333333333),
        filter: Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos'] = 'bilinear',
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    def flip(
        self,
        way: Literal['horizontal', 'vertical'] = 'horizontal',
        *,
        p: float = 0.5,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Mirrors images, with a probability.

        way: 'horizontal' | 'vertical', default 'horizontal'
            horizontal: left and right are exchanged; vertical: top and bottom
        p: float 0 to 1, default 0.5
            the probability; 1: always
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: flip vertical p=0.1
        """

    def color_jitter(
        self,
        *,
        brightness: float | Sequence[float] = 0.0,
        contrast: float | Sequence[float] = 0.0,
        saturation: float | Sequence[float] = 0.0,
        hue: float | Sequence[float] = 0.0,
        p: float = 1.0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Changes brightness, contrast, saturation and hue at random.

        brightness: float 0 to 1000, one or several, default 0.0
            b: a factor from 1 - b (at least 0) to 1 + b; or low,high
        contrast: float 0 to 1000, one or several, default 0.0
            as brightness=
        saturation: float 0 to 1000, one or several, default 0.0
            as brightness=
        hue: float -0.5 to 0.5, one or several, default 0.0
            h: a turn from -h to h of the full circle; or low,high
        p: float 0 to 1, default 1.0
            the probability; 1: always
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images that are changed with the same draw; default: all

        As text: color_jitter brightness=0.4 contrast=0.4 saturation=0.4 hue=0.1
        """

    def brightness(
        self,
        delta: float | None = None,
        *,
        max: float | None = None,
        p: float = 1.0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Adds one value to all channels, fixed or random.

        delta: float -1 to 1
            the value to add; 1 is the full range
        max: float 0 to 1
            instead: a random value from -max to max is added
        p: float 0 to 1, default 1.0
            the probability; 1: always
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images that are changed with the same draw; default: all

        As text: brightness max=0.125
        """

    def grayscale(
        self,
        *,
        channels: Literal['keep', 1] = 'keep',
        p: float = 1.0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Makes colours gray, always or with a probability.

        channels: 'keep' | 1, default 'keep'
            keep: the same number of channels, all equal; 1: one channel
        p: float 0 to 1, default 1.0
            the probability; 1: always
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images that are changed with the same draw; default: all

        As text: grayscale p=0.1
        """

    def gaussian_blur(
        self,
        size: int,
        *,
        sigma: float | Sequence[float] = (0.1, 2.0),
        p: float = 1.0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Blurs with a gaussian of random width.

        size: int 1 to 63, required
            sides of the kernel in pixels, odd
        sigma: float 0.001 to 1000, one or several, default (0.1, 2.0)
            standard deviation in pixels, drawn from low,high; or one value
        p: float 0 to 1, default 1.0
            the probability; 1: always
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images that are changed with the same draw; default: all

        As text: gaussian_blur 23 sigma=0.1,2 p=0.5
        """

    def random_erasing(
        self,
        p: float = 0.5,
        *,
        scale: float | Sequence[float] = (0.02, 0.33),
        ratio: float | Sequence[float] = (0.3, 3.3),
        value: int | Sequence[int] = 0,
        noise: bool = False,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Paints over a random rectangle.

        p: float 0 to 1, default 0.5
            the probability; 1: always
        scale: float 0 to 1, one or several, default (0.02, 0.33)
            area of the rectangle, as a share of the image's, drawn from low,high
        ratio: float 0.001 to 1000, one or several, default (0.3, 3.3)
            height to width, drawn from low,high
        value: int 0 to 255, one or several, default 0
            the colour: one value, or one for each channel
        noise: True or False, default False
            yes: a random colour for each pixel instead
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images that are changed with the same draw; default: all

        As text: random_erasing 0.25
        """

    @overload
    def rotate(
        self,
        *degrees: float | Sequence[float],
        exact: bool = False,
        filter: Literal['nearest', 'bilinear'] = 'nearest',
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        p: float = 1.0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Rotates about the centre, by a random or an exact angle.

        degrees: float -360 to 360, one or several, required
            d: an angle from -d to d, counter-clockwise; or low high
        exact: True or False, default False
            yes: always by exactly this angle
        filter: 'nearest' | 'bilinear', default 'nearest'
            how pixels are taken; masks always use nearest
        fill: int 0 to 255, one or several, default 0
            colour of uncovered pixels: one value, or one for each channel
        mask_fill: int 0 to 255, default 0
            class of uncovered pixels in masks
        p: float 0 to 1, default 1.0
            the probability; 1: always
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images, masks and boxes that are changed with the same draw; default: all images and
            masks

        As text: rotate 15 filter=bilinear
        """
    @overload
    def rotate(
        self,
        *,
        degrees: float | Sequence[float],
        exact: bool = False,
        filter: Literal['nearest', 'bilinear'] = 'nearest',
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
        p: float = 1.0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline: ...

    def trivial_augment(
        self,
        *,
        fill: int | Sequence[int] = 0,
        seed: int = 0,
        on: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """One random colour or geometric operation, of random strength.

        fill: int 0 to 255, one or several, default 0
            colour of uncovered pixels: one value, or one for each channel
        seed: int from 0, default 0
            another seed gives other draws
        on: str, one or several
            images that are changed with the same draw; default: all

        As text: trivial_augment
        """

    def batch(
        self,
        rows: int,
        *,
        per: Literal['rank', 'global'] = 'rank',
        micro: int = 0,
        remainder: Literal['keep', 'drop', 'pad'] = 'keep',
        on_error: Literal['fail', 'skip', 'replace'] = 'fail',
        max_errors: int = 1000,
    ) -> Pipeline:
        """Collects samples into batches.

        rows: int 1 to 2147483647, required
            samples in a batch
        per: 'rank' | 'global', default 'rank'
            what rows means: the batch of each rank, or of all ranks together
        micro: int 0 to 2147483647, default 0
            deliver a rank's batch in micro-batches of this many rows; 0: whole
        remainder: 'keep' | 'drop' | 'pad', default 'keep'
            if there are too few samples for the last batch: a smaller batch, no batch, or a
            full one with rows marked as not valid
        on_error: 'fail' | 'skip' | 'replace', default 'fail'
            at a bad sample: next fails, the batch has one row less, or another sample replaces
            it
        max_errors: int from 0, default 1000
            most bad samples in an epoch that skip and replace accept

        As text: batch 64
        """

    def bucket(
        self,
        tokens: int,
        *,
        rows: int = 256,
        buffer: int | str = '4MiB',
        edges: int | Sequence[int] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        on_error: Literal['fail', 'skip'] = 'fail',
        max_errors: int = 1000,
    ) -> Pipeline:
        """Batches of samples of similar length, bounded by tokens.

        tokens: int 1 to 1073741824, required
            most elements of a batch: its rows times the longest of them
        rows: int 1 to 65536, default 256
            most rows of a batch, even if they are short
        buffer: int or str 4096 to 1099511627776, default '4MiB'
            memory for samples, which are sorted by length in it
        edges: int 1 to 1073741824, one or several
            widths that batches may have, ascending: for frameworks that compile for each shape;
            default: that of the longest row
        shuffle: True or False, default True
            yes: the batches of one buffer in random order; no: the longest first
        seed: int, default 0
            another number gives another order of batches
        on_error: 'fail' | 'skip', default 'fail'
            at a bad sample: next fails, or it is left out
        max_errors: int from 0, default 1000
            most bad samples in an epoch that skip accepts

        As text: bucket 8192 buffer=8MiB
        """

    def pack_sequences(
        self,
        length: int,
        *,
        on: str | None = None,
        split: bool = True,
    ) -> Pipeline:
        """Lays documents end to end in windows of one length.

        length: int 1 to 16777216, required
            elements of a window
        on: str
            the field to pack; default: the first that differs in length
        split: True or False, default True
            yes: a document that does not fit continues in the next window; no: it begins there,
            and only a document longer than a window is split

        As text: pack_sequences 1024
        """

    def mixup(
        self,
        alpha: float = 0.2,
        *,
        on: str | Sequence[str] | None = None,
        labels: str | Sequence[str] | None = None,
        p: float = 1.0,
        seed: int = 0,
    ) -> Pipeline:
        """Mixes each row of a batch and its labels with the row before.

        alpha: float 0.001 to 1000, default 0.2
            lambda is drawn from Beta(alpha, alpha): near 0, most batches are hardly mixed; 1:
            all lambdas are equally likely
        on: str, one or several
            fields to mix; default: the first
        labels: str, one or several
            fields of one-hot labels, mixed by lambda; default: the last
        p: float 0 to 1, default 1.0
            probability that a batch is mixed
        seed: int, default 0
            another number draws other batches and lambdas

        As text: mixup alpha=0.2 on=image labels=label
        """

    def cutmix(
        self,
        alpha: float = 1.0,
        *,
        on: str | Sequence[str] | None = None,
        labels: str | Sequence[str] | None = None,
        p: float = 1.0,
        seed: int = 0,
        layout: Literal['guess', 'chw', 'hwc'] = 'guess',
    ) -> Pipeline:
        """Replaces a box of every image by that of the row before, and mixes the labels.

        alpha: float 0.001 to 1000, default 1.0
            lambda is drawn from Beta(alpha, alpha): near 0, most batches are hardly mixed; 1:
            all lambdas are equally likely
        on: str, one or several
            fields to mix; default: the first
        labels: str, one or several
            fields of one-hot labels, mixed by lambda; default: the last
        p: float 0 to 1, default 1.0
            probability that a batch is mixed
        seed: int, default 0
            another number draws other batches and lambdas
        layout: 'guess' | 'chw' | 'hwc', default 'guess'
            where the channels are; guess: the first or last dimension, whichever is 1, 3 or 4

        As text: cutmix on=image labels=label
        """

    def cache(
        self,
        tier: Literal['memory', 'device'] | None = None,
        *,
        file: str | PathLike[str] | None = None,
        limit: int | str | None = None,
        verify: Literal['open', 'hit', 'never', 'content'] = 'open',
        freeze: bool = False,
    ) -> Pipeline:
        """Keeps samples in memory, on the device or in a file.

        tier: 'memory' | 'device'
            memory: in free budget, given back when it is needed; the default without file=;
            device: in free memory of the device that batches are delivered on, after all other
            stages except batch
        file: str or PathLike[str]
            in this file, which is made if it does not exist; a directory has one file for each
            pipeline
        limit: int or str from 0
            the most bytes that it takes; default: all that is free
        verify: 'open' | 'hit' | 'never' | 'content', default 'open'
            when size, times and inode of data files are checked: open: of all files when
            opening; hit: of the sample's file, at each hit; never; content: instead, the
            sample's records are read and hashed at each hit
        freeze: True or False, default False
            yes: random stages before it draw as in epoch 0, in every epoch

        As text: cache file=val.brimcache limit=20GiB
        """
